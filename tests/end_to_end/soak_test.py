"""Disturbs jobs at random moments and runs them again, on other ranks and modes, until they are
complete: every clip must have the bits of a job that was not disturbed.

REELMESH_SOAK_RUNS: number of runs (2; tests/soak does 100), REELMESH_SOAK_SEED: of the random
choices. A table of the disturbances is printed at the end.
"""

import collections
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

from support import (ERROR, Reference, Scratch, clip_file, command_of, finish, main, programs_of,
                     read_clip, run, start)

RUNS = int(os.environ.get("REELMESH_SOAK_RUNS", "2"))
SEED = int(os.environ.get("REELMESH_SOAK_SEED", "1"))
CLIPS, STEPS = 3, 30
TIMEOUT = 3  # seconds, device.timeout of all jobs
LAYOUTS = ((1, {}), (1, {"sample__batch": 3}), (2, {}), (2, {"parallel__cfg": 2}), (3, {}),
           (3, {"parallel__mode": "split"}), (4, {"parallel__mode": "split"}),
           (4, {"parallel__replicas": 2}), (4, {"sample__batch": 2}))


class Disturbance:
    """What is done to a running job, and the exit statuses that it may have then. partial: when it
    writes a file; several: needs several ranks."""

    def __init__(self, name, act, statuses=None, partial=False, several=False):
        self.name, self.act, self.statuses = name, act, statuses
        self.partial, self.several = partial, several


def one(signal_number):
    return lambda job, ranks, dice: os.kill(dice.choice(ranks), signal_number)


def every(signal_number):
    return lambda job, ranks, dice: [os.kill(rank, signal_number) for rank in ranks]


def launcher(signal_number):
    return lambda job, ranks, dice: job.send_signal(signal_number)


DISTURBANCES = (
    Disturbance("SIGKILL to one rank", one(signal.SIGKILL)),
    Disturbance("SIGKILL to all ranks", every(signal.SIGKILL)),
    Disturbance("SIGKILL to mpirun", launcher(signal.SIGKILL)),
    Disturbance("SIGKILL to one rank while it writes a file", one(signal.SIGKILL), partial=True),
    Disturbance("SIGTERM to one rank", one(signal.SIGTERM), (75, 0)),
    Disturbance("SIGTERM to mpirun", launcher(signal.SIGTERM)),
    Disturbance("SIGUSR1 to mpirun", launcher(signal.SIGUSR1), (75, 0)),
    Disturbance("SIGSTOP of one rank", one(signal.SIGSTOP), (76, 0), several=True),
    Disturbance("full disk", None, (74, 73, 0)),
)


class SoakTest(Scratch):
    def setUp(self):
        super().setUp()
        self.dice = random.Random(SEED)
        self.output = self.folder / "output"
        began = time.monotonic()
        self.make(self.options(output__path=self.folder / "expected"))
        self.duration = time.monotonic() - began
        self.expected = [read_clip(self.folder / "expected", i) for i in range(CLIPS)]

    def options(self, **more):
        more = {"prompt__text": ["one", "two", "three"], "sample__steps": STEPS,
                "restart__every": 3, "device__timeout": f"{TIMEOUT}s"} | more
        return Reference("rotary").options(self.output, **more)

    def complete_clips(self):
        """Checks the clips that have their final names; → how many."""
        found = [i for i in range(CLIPS) if clip_file(self.output, i).exists()]
        for i in found:
            clip = read_clip(self.output, i)
            for name in ("latents", "video"):
                self.assertEqual(clip[name].tobytes(), self.expected[i][name].tobytes(),
                                 f"{name} of clip {i}")
        return len(found)

    def disturb(self, disturbance, ranks, layout):
        """A job that is disturbed; → its outcome, None if it ended before."""
        began = time.monotonic()
        job = start(command_of(self.options(output__if_exists="resume", **layout), ranks),
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # Later than the start of MPI, within which Open MPI itself may hang.
        while job.poll() is None and not self.output.exists():
            time.sleep(0.01)
        moment = time.monotonic() + 0.8 * self.dice.random() * self.duration
        while job.poll() is None and time.monotonic() < moment:
            if disturbance.partial and any(self.output.glob("*/.*.partial")):
                break
            time.sleep(0.005)
        processes = programs_of(job.pid, ranks)
        in_time = job.poll() is None and len(processes) == ranks
        if in_time:
            try:
                disturbance.act(job, processes, self.dice)
            except ProcessLookupError:
                in_time = False
        outcome = finish(job, began, 300)
        # Ranks that lost their launcher end too.
        for process in processes if ranks > 1 else []:
            for _ in range(200):
                if not pathlib.Path(f"/proc/{process}/exe").exists():
                    break
                time.sleep(0.1)
            else:
                self.fail(f"rank {process} is left behind after '{disturbance.name}'\n{outcome}")
        return outcome if in_time else None

    def fill_disk(self, ranks, layout):
        """A job whose folder is on a disk with room for a part of it; → its outcome."""
        self.output.mkdir()
        size = f"{self.dice.randint(100, 1200)}k"
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.output],
                               capture_output=True, text=True)
        if mount.returncode != 0:
            print(f"skipped: full disk: {mount.stderr.strip()}", flush=True)
            return None
        self.addCleanup(subprocess.run, ["umount", self.output], capture_output=True)
        outcome = run(self.options(output__if_exists="resume", **layout), ranks, timeout=300)
        subprocess.run(["mount", "-o", "remount,size=100m", self.output], check=True)
        return outcome

    def one_run(self, number, disturbance, ranks, layout, row):
        if disturbance.act is None:
            outcome = self.fill_disk(ranks, layout)
        else:
            outcome = self.disturb(disturbance, ranks, layout)
        if outcome is None:
            row["too late"] += 1
        else:
            row[f"status {outcome.status}"] += 1
            if disturbance.statuses:
                self.assertIn(outcome.status, disturbance.statuses, outcome)
            if outcome.status in (73, 74, 75, 76):
                self.assertLessEqual(len(outcome.lines(ERROR)), 1, outcome)
        row["clips kept"] += self.complete_clips()
        if number % 2:
            ranks, layout = self.dice.choice(LAYOUTS)
        again = run(self.options(output__if_exists="resume", **layout), ranks, timeout=300)
        self.assertEqual(again.status, 0, again)
        row["states kept"] += " goes on after step " in again.errors
        self.assertEqual(self.complete_clips(), CLIPS)
        self.assertEqual(list(self.output.glob("**/.*")), [])
        shutil.rmtree(self.output, ignore_errors=True)

    def test_every_job_ends_with_the_same_clips(self):
        table = collections.defaultdict(collections.Counter)
        for number in range(RUNS):
            disturbance = DISTURBANCES[number % len(DISTURBANCES)]
            ranks, layout = self.dice.choice(LAYOUTS)
            while ranks == 1 and disturbance.several:
                ranks, layout = self.dice.choice(LAYOUTS)
            about = f"run {number}: {disturbance.name}, {ranks} ranks, {layout}"
            row = table[disturbance.name]
            row["runs"] += 1
            with self.subTest(about):
                self.output = self.folder / f"output_{number}"
                try:
                    self.one_run(number, disturbance, ranks, layout, row)
                except AssertionError as error:
                    print(f"{about}: {error}", flush=True)
                    raise
        for name, row in table.items():
            text = ", ".join(f"{what} {count}" for what, count in row.items() if what != "runs")
            print(f"{name}: {row['runs']} runs; {text}", flush=True)


if __name__ == "__main__":
    main()

"""Disturbs jobs of all kinds at random moments and runs them again, on other ranks and modes, until
they are complete: every result must have the bits of a job that was not disturbed.

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
import sys
import time

import h5py

from media import MediaReference
from support import (DATA, ERROR, Reference, Scratch, command_of, execute, finish, main,
                     programs_of, read_clip, run, start)
import opensora_test

SOURCE = DATA.parents[2]
RUNS = int(os.environ.get("REELMESH_SOAK_RUNS", "2"))
SEED = int(os.environ.get("REELMESH_SOAK_SEED", "1"))
TIMEOUT = 3  # seconds, device.timeout of all jobs
COGVIDEOX = ((1, {}), (1, {"sample.batch": 3}), (2, {}), (2, {"parallel.cfg": 2}), (3, {}),
             (3, {"parallel.mode": "split"}), (4, {"parallel.mode": "split"}),
             (4, {"parallel.replicas": 2}), (4, {"sample.batch": 2}))
OPEN_SORA = ((1, {}), (1, {"sample.batch": 3}), (2, {}), (3, {}), (3, {"parallel.mode": "split"}),
             (4, {"parallel.replicas": 2}))
TRAINING = ((1, {}), (2, {}), (2, {"parallel.replicas": 1}), (3, {}), (4, {"parallel.replicas": 2}))


class Kind:
    """A kind of job. options: of folder (for inputs); layouts: ranks and options that change no
    bits; disk: KiB that are sometimes too few."""

    def __init__(self, name, command, layouts, disk, options):
        self.name, self.command, self.layouts = name, command, layouts
        self.disk, self.options = disk, options

    def results(self, output, complete):
        """What must not depend on disturbances, by name, of what is there; files of a training that
        change with each step only if it is complete."""
        found = {}
        for path in sorted(output.glob("**/clips/[!.]*.h5")):
            clip = read_clip(path.parents[1], int(path.stem))
            for name in ("latents", "video"):
                found[f"{path.relative_to(output)}/{name}"] = clip[name].tobytes()
        if self.command == "train" and complete:
            with h5py.File(output / "metrics.h5") as file:
                found |= {name: file[name][()].tobytes() for name in file if name != "seconds"}
            for path in sorted(output.glob("*/*.safetensors")):
                found[str(path.relative_to(output))] = path.read_bytes()
        return found


def text_to_video(folder):
    return Reference("rotary").options(None, prompt__text=["one", "two", "three"],
                                       sample__steps=30, restart__every=3)


def image_to_video(folder):
    reference = MediaReference("i2v")
    return reference.options(None, sample__steps=20, restart__every=3,
                             prompt__file=reference.prompt_file(folder))


def open_sora(folder):
    return opensora_test.Reference("v1_2").options(
        None, prompt__text=["one", "two", "three"], sample__steps=12, restart__every=3)


def training(folder, **more):
    clips = folder / "clips"
    if not clips.exists():
        made = execute([sys.executable, SOURCE / "tools" / "make_training_clips", clips,
                        "--count", 5, "--prompts", 1])
        assert made.status == 0, made
    return {"model.path": SOURCE / "inputs" / "demo_model", "data.path": clips, "train.steps": 8,
            "train.batch": 2, "train.save-every": 2, "train.learning-rate": 0.01,
            "train.caption-dropout": 0.2} | more


def lora(folder):
    return training(folder, **{"lora.rank": 4, "train.validate-every": 4, "train.sample-every": 4,
                               "train.sample-steps": 4})


def all_weights(folder):
    return training(folder, **{"train.method": "full", "train.ema": 0.9})


KINDS = (
    Kind("text to video", "run", COGVIDEOX, (100, 1200), text_to_video),
    Kind("training of a LoRA", "train", TRAINING, (100, 4000), lora),
    Kind("image to video", "run", COGVIDEOX, (100, 1200), image_to_video),
    Kind("Open-Sora", "run", OPEN_SORA, (100, 1200), open_sora),
    Kind("training of all weights", "train", TRAINING, (100, 30000), all_weights),
)


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
        self.kind, self.output = None, None
        self.expected, self.duration = {}, {}

    def use(self, kind):
        """Takes this kind of job, and runs one that is not disturbed, the first time."""
        self.kind = kind
        if kind.name in self.expected:
            return
        self.output = self.folder / f"expected of {kind.name}"
        began = time.monotonic()
        self.check_complete(self.run_job(1, {}))
        self.duration[kind.name] = time.monotonic() - began
        self.expected[kind.name] = kind.results(self.output, True)

    def options(self, layout):
        return self.kind.options(self.folder) | {
            "output.path": self.output, "output.if-exists": "resume",
            "device.timeout": f"{TIMEOUT}s"} | layout

    def run_job(self, ranks, layout):
        return run(self.options(layout), ranks, timeout=300, name=self.kind.command)

    def check_complete(self, outcome):
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.lines(ERROR), [], outcome)

    def check_results(self, complete):
        """Checks the files that have their final names; → how many results."""
        found, expected = self.kind.results(self.output, complete), self.expected[self.kind.name]
        for name, values in found.items():
            self.assertTrue(values == expected[name], f"{name} differs")
        if complete:
            self.assertEqual(found.keys(), expected.keys())
        return len(found)

    def disturb(self, disturbance, ranks, layout):
        """A job that is disturbed; → its outcome, None if it ended before."""
        began = time.monotonic()
        job = start(command_of(self.options(layout), ranks, self.kind.command),
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # Later than the start of MPI, within which Open MPI itself may hang.
        while job.poll() is None and not self.output.exists():
            time.sleep(0.01)
        moment = time.monotonic() + 0.8 * self.dice.random() * self.duration[self.kind.name]
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
        size = f"{self.dice.randint(*self.kind.disk)}k"
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.output],
                               capture_output=True, text=True)
        if mount.returncode != 0:
            print(f"skipped: full disk: {mount.stderr.strip()}", flush=True)
            return None
        self.addCleanup(subprocess.run, ["umount", self.output], capture_output=True)
        outcome = self.run_job(ranks, layout)
        subprocess.run(["mount", "-o", "remount,size=1g", self.output], check=True)
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
        self.check_results(False)
        if number % 2:
            ranks, layout = self.dice.choice(self.kind.layouts)
        again = self.run_job(ranks, layout)
        self.check_complete(again)
        row["states kept"] += (" goes on after step " in again.errors or
                               " steps were done before" in again.errors)
        self.check_results(True)
        self.assertEqual(list(self.output.glob("**/.*")), [])
        shutil.rmtree(self.output, ignore_errors=True)

    def test_every_job_ends_with_the_same_results(self):
        table = collections.defaultdict(collections.Counter)
        for number in range(RUNS):
            disturbance = DISTURBANCES[number % len(DISTURBANCES)]
            # Each kind with each disturbance, also where their numbers have a common divisor.
            self.use(KINDS[(number + number // (len(DISTURBANCES) * len(KINDS))) % len(KINDS)])
            ranks, layout = self.dice.choice(self.kind.layouts)
            while ranks == 1 and disturbance.several:
                ranks, layout = self.dice.choice(self.kind.layouts)
            about = f"run {number}: {self.kind.name}, {disturbance.name}, {ranks} ranks, {layout}"
            row = table[disturbance.name]
            row["runs"] += 1
            table[self.kind.name]["runs"] += 1
            with self.subTest(about):
                self.output = self.folder / f"output_{number}"
                try:
                    self.one_run(number, disturbance, ranks, layout, row)
                except AssertionError as error:
                    print(f"{about}: {error}", flush=True)
                    raise
        for name, row in table.items():
            text = ", ".join(f"{what} {count}" for what, count in row.items() if what != "runs")
            print(f"{name}: {row['runs']} runs; {text}".rstrip("; "), flush=True)


if __name__ == "__main__":
    main()

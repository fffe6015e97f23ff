"""Jobs that end early: stopped on request, killed, hanging. Run again, they go on from what was
saved, on other ranks and layouts, and their clips have the bits of a job that was not disturbed."""

import os
import shutil
import signal
import subprocess
import time

import h5py

from interrupted import Interrupted
from support import (BACKEND, ERROR, LONG, WARNING, Reference, clip_file, flip_bit, job_status,
                     main, names_of_states, only_long, read_clip, result_files, run, send)
from tables import table

STOPPED, WATCHDOG = 75, 76
# A library that stops a rank within exit().
STOPS = """
#include <signal.h>
#include <stdlib.h>
#include <string.h>
__attribute__((destructor)) static void stop(void) {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  const char* stopped = getenv("STOPPED_RANK");
  if (rank && stopped && strcmp(rank, stopped) == 0) raise(SIGSTOP);
}
"""
STEPS = 40


class RestartTest(Interrupted):
    """A job of three clips with many short steps."""

    expected = None  # clips of an undisturbed job on one rank

    def setUp(self):
        super().setUp()
        if RestartTest.expected is None:
            self.make(self.options(output__path=self.folder / "expected"))
            RestartTest.expected = [read_clip(self.folder / "expected", i) for i in range(3)]

    def options(self, **more):
        more = {"prompt__text": ["one", "two", "three"], "sample__steps": STEPS} | more
        if BACKEND:
            more = {"sample__height": 32, "sample__width": 32, "sample__frames": 8} | more
        return Reference("rotary").options(self.output, **more)

    def check_clips(self, count=3):
        for index in range(count):
            clip = read_clip(self.output, index)
            for name in ("latents", "video"):
                self.assertEqual(clip[name].tobytes(), self.expected[index][name].tobytes(),
                                 f"{name} of clip {index}")

    def check_goes_on(self, ranks, **more):
        """Runs the job again, which must complete it."""
        outcome = run(self.options(output__if_exists="resume", **more), ranks)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.lines(ERROR) + outcome.lines(WARNING), [], outcome)
        self.check_clips()
        self.assertFalse((self.output / "restart").exists())
        self.assertEqual(list(self.output.glob("**/.*")), [])
        self.assertEqual(job_status(self.output), "complete")
        return outcome

    def check_stopped(self, outcome, cause):
        self.assertEqual(outcome.status, STOPPED, outcome)
        self.assertEqual(outcome.lines(ERROR), [], outcome)
        said = outcome.lines("stopped on request")
        self.assertEqual(len(said), 1, outcome)
        self.assertIn(f"({cause})", said[0])
        self.assertLess(outcome.seconds, 30)
        self.assertTrue(self.saved() or result_files(self.output), outcome)
        self.assertEqual(list(self.output.glob("**/.*.partial")), [])
        self.assertEqual(job_status(self.output), "stopped")

    def test_stops_on_a_signal_and_goes_on_with_other_ranks_and_modes(self):
        forwarded = lambda job, ranks: job.send_signal(signal.SIGUSR1)  # mpirun passes it on
        to_one_rank = lambda job, ranks: os.kill(ranks[-1], signal.SIGTERM)
        cases = ((2, {}, forwarded, "SIGUSR1", 3, {"parallel__mode": "split"}),
                 (4, {"parallel__mode": "split"}, to_one_rank, "SIGTERM", 1, {}),
                 (4, {"parallel__cfg": 2}, to_one_rank, "SIGTERM", 2, {"sample__batch": 3}),
                 (1, {"sample__batch": 2}, lambda job, ranks: job.send_signal(signal.SIGXCPU),
                  "SIGXCPU, the limit of CPU time", 4, {"parallel__mode": "phased", "parallel__replicas": 2}))
        for ranks, layout, disturbance, cause, later_ranks, later_layout in cases:
            with self.subTest(ranks=ranks, layout=layout):
                shutil.rmtree(self.output, ignore_errors=True)
                outcome = self.disturb(ranks, disturbance,
                                       self.options(restart__every=1, **layout))
                self.check_stopped(outcome, cause)
                saved = self.saved()
                again = self.check_goes_on(later_ranks, **later_layout)
                for clip, step in list(saved.items())[:1]:
                    self.assertIn(f"clip {clip} goes on after step {step} of {STEPS}",
                                  again.errors)

    def test_stops_at_a_time_limit(self):
        began = time.monotonic()
        self.make(self.options())
        # Enough for some steps on a loaded machine, and less than the steps of a clip take.
        seconds = time.monotonic() - began + 0.5
        shutil.rmtree(self.output)
        long = {"sample__steps": 1000}
        if not BACKEND:
            long |= {"sample__height": 224, "sample__width": 192}
        options = self.options(restart__every="none", **long)
        outcome = run(options | {"max-time": f"{seconds}s"}, 2)
        self.check_stopped(outcome, "the time limit (--max-time)")
        self.assertGreaterEqual(len(self.saved()), 1, outcome)
        slurm = {"SLURM_JOB_END_TIME": str(int(time.time() + seconds) + 1)}
        options = self.options(output__if_exists="resume", **long)
        done = lambda: sum(self.saved().values()) + 1000 * sum(
            clip_file(self.output, index).exists() for index in range(3))
        before = done()
        outcome = run(options, 3, slurm)
        self.check_stopped(outcome, "the time limit (--max-time)")
        self.assertGreater(done(), before)

    def test_clips_of_an_earlier_job_are_not_shown(self):
        """Neither those in its output folder, nor what it saved of others."""
        self.make(self.options(sample__steps=1))
        old = {clip_file(self.output, index): clip_file(self.output, index).read_bytes()
               for index in range(3)}
        foreign = self.output / "restart" / "000002.h5"

        def index():
            """States and links of job.h5, and whether videos are there."""
            with h5py.File(self.output / "job.h5") as job:
                video = next(iter(job["videos"].values()))["video"]
                return (names_of_states(table(job, "states")), list(job["clips"]),
                        [bool(clip.any()) for clip in video])

        found = []

        def disturb(job, ranks):
            found.append(index())
            shutil.copy(foreign.with_name("000000.h5"), foreign)
            job.send_signal(signal.SIGTERM)
        outcome = self.disturb(1, disturb, self.options(output__if_exists="resume",
                                                        restart__every=1))
        self.check_stopped(outcome, "SIGTERM")
        self.assertEqual(found, [(3 * ["missing"], ["000000", "000001", "000002"], 3 * [False])])
        self.assertEqual(index(), (["saved", "missing", "missing"], [], 3 * [False]))
        for path, content in old.items():
            self.assertFalse(path.exists())
            self.assertEqual((self.output / "earlier" / path.name).read_bytes(), content)
        self.assertEqual(len(outcome.lines("3 clip files are not of this job")), 1, outcome)
        foreign.unlink()
        self.check_goes_on(2)

    def test_goes_on_after_a_kill(self):
        outcome = self.disturb(3, lambda job, ranks: os.kill(ranks[1], signal.SIGKILL),
                               self.options(restart__every=2))
        self.assertNotEqual(outcome.status, 0)
        self.assertLess(outcome.seconds, 10)
        # The other ranks may complete the clip that was saved before mpirun ends them.
        self.assertTrue(self.saved() or result_files(self.output))
        self.check_goes_on(2)

    def test_goes_on_within_decoding(self):
        """With its last step saved, a clip is only decoded."""
        options = self.options(restart__every=STEPS)
        self.disturb(2, lambda job, ranks: send(signal.SIGKILL, ranks),
                     options, when=lambda: STEPS in self.saved_quietly().values())
        again = self.check_goes_on(3)
        if "goes on" in again.errors:  # unless the clip was complete before the kill
            self.assertIn(f"goes on after step {STEPS} of {STEPS}", again.errors)

    def test_a_second_signal_ends_at_once(self):
        def twice(job, ranks):  # all ranks wait for the first, which stays suspended
            for _ in range(2):
                send(signal.SIGUSR1, ranks[1:])
                send(signal.SIGCONT, ranks[1:])
                time.sleep(1.5)
            return ranks[:1]
        outcome = self.disturb(2, twice, self.options(restart__every=1))
        self.assertEqual(outcome.status, STOPPED, outcome)
        self.assertLess(outcome.seconds, 10)
        self.check_goes_on(1)

    def test_signals_can_be_left_alone(self):
        outcome = self.disturb(1, lambda job, ranks: job.send_signal(signal.SIGTERM),
                               self.options(restart__every=1, restart__on_signal="no"))
        self.assertEqual(outcome.status, -signal.SIGTERM)
        self.check_goes_on(1)

    def test_a_rank_that_hangs_is_noticed(self):
        # The message says what the rank did up to 0.25 s earlier, so not at the start of the job.
        later = lambda: 1 in self.saved_quietly()
        for place in (1, 0) if LONG else (1,):
            with self.subTest(rank=place):
                shutil.rmtree(self.output, ignore_errors=True)
                outcome = self.disturb(3, lambda job, ranks: [ranks[place]],
                                       self.options(restart__every=1, device__timeout="3s",
                                                    parallel__replicas=1), later)
                self.assertEqual(outcome.status, WATCHDOG, outcome)
                errors = outcome.lines(ERROR)
                self.assertEqual(len(errors), 1, outcome)
                for text in (f"rank {place}: no sign of life for 3", "device.timeout", "clip"):
                    self.assertIn(text, errors[0])
                self.assertLess(outcome.seconds, 3 + 10)
                self.check_goes_on(2)

    @only_long
    def test_a_rank_that_is_stopped_as_it_ends_is_noticed(self):
        # Of each rank all files are written then, and rank 0 has heard that it ends.
        library = self.folder / "stops.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], check=True,
                       text=True, input=STOPS)
        for place, status in ((1, WATCHDOG), (0, 137)) if LONG else ((1, WATCHDOG),):
            with self.subTest(rank=place):
                shutil.rmtree(self.output, ignore_errors=True)
                outcome = run(self.options(device__timeout="2s"), 3,
                              {"LD_PRELOAD": str(library), "STOPPED_RANK": str(place)})
                self.assertEqual(outcome.status, status, outcome)
                errors = outcome.lines(ERROR)
                self.assertEqual(len(errors), 1, outcome)
                self.assertIn(f"rank {place}: the process has not ended", errors[0])
                self.check_clips()
                self.assertEqual(job_status(self.output), "complete")

    def test_stops_before_anything_is_made(self):
        prompts = self.folder / "prompts.txt"
        prompts.write_text("a prompt\n" * 10000)
        options = self.options(prompt__file=prompts)
        for ranks in (1, 2):
            outcome = run(options | {"max-time": "0.001s"}, ranks)
            self.assertEqual(outcome.status, STOPPED, outcome)
            self.assertEqual(outcome.errors.count("stopped on request (the time limit (--max-time)) "
                                                  "while the prompts are read"), 1, outcome)
            self.assertFalse(self.output.exists())

    @only_long
    def test_a_whole_job_may_be_suspended(self):
        outcome = self.disturb(2, lambda job, ranks: time.sleep(5),
                               self.options(restart__every=1, device__timeout="3s"))
        self.assertEqual(outcome.status, 0, outcome)
        self.check_clips()

    def test_a_damaged_or_foreign_restart_file_is_not_used(self):
        def kill(job, ranks):
            job.kill()
        self.disturb(1, kill, self.options(restart__every=1))
        path = next((self.output / "restart").glob("[0-9]*.h5"))
        flip_bit(path, path.stat().st_size // 2)
        outcome = run(self.options(output__if_exists="resume"), 2)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(len(outcome.lines(WARNING)), 1, outcome)
        self.assertIn(f"{path}: damaged, or not of this clip and model", outcome.lines(WARNING)[0])
        self.check_clips()

        shutil.rmtree(self.output)
        self.disturb(1, kill, self.options(restart__every=1, sample__guidance=4))
        outcome = run(self.options(output__if_exists="resume"), 2)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(len(outcome.lines(WARNING)), 1, outcome)
        self.check_clips()


if __name__ == "__main__":
    main()

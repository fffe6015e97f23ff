"""Many clips in stages that run side by side, with disturbances, and with little memory for those
that wait. No bit depends on who makes which clip, or when."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import threading
import time

from queue_test import SIZES, QueueCase
from support import (BACKEND, ERROR, LONG, WARNING, command_of, finish, main, only_long,
                     programs_of, run, start)

SHORT = [size | {"steps": size["steps"] // (4 if BACKEND else 2)} for size in SIZES]


@contextlib.contextmanager
def delays(job, ranks, seed):
    """Suspends random ranks of a job for random times."""
    dice = random.Random(seed)
    done = threading.Event()

    def disturb():
        while not done.is_set():
            programs = programs_of(job.pid, ranks)
            if programs:
                chosen = dice.choice(programs)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chosen, signal.SIGSTOP)
                    done.wait(dice.uniform(0, 0.3))
                    os.kill(chosen, signal.SIGCONT)
            done.wait(dice.uniform(0, 0.05))
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class StreamTest(QueueCase):
    def options(self, clips, sizes=SHORT, **more):
        return super().options(clips, sizes, **more)

    def test_stages_side_by_side(self):
        """Each stage has ranks of its own, and decoding goes on beside denoising."""
        clips = 6 if BACKEND else 12
        expected = self.expected(clips)
        outcome = run(self.options(clips, parallel__mode="split", parallel__replicas=1), 4)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.lines(ERROR) + outcome.lines(WARNING), [], outcome)
        self.check_bits(expected)
        made = self.clips_by_rank()
        self.assertEqual(sorted(made), [1, 2])
        self.assertEqual(made[1], made[2], "one replica of two ranks")
        self.assertEqual(sorted(made[1]), list(range(clips)))
        steps = self.spans(b"denoise_step")
        begin, end = steps["start_ns"].min(), (steps["start_ns"] + steps["duration_ns"]).max()
        beside = [span for span in self.spans(b"decode", 3) if begin < span["start_ns"] < end]
        self.assertNotEqual(beside, [], "decoded while others denoised")

    def test_delays_change_no_bit(self):
        clips = 9
        expected = self.expected(clips)
        layouts = ((4, {"parallel__mode": "split"}),
                   (7, {"parallel__mode": "split", "parallel__text": 2, "parallel__replicas": 2,
                        "sample__batch": 2}),
                   (5, {"parallel__mode": "split", "parallel__decode": 2}),
                   (3, {"parallel__replicas": 3}))
        for seed, (ranks, layout) in enumerate(layouts * 5 if LONG else layouts[:2]):
            with self.subTest(ranks=ranks, layout=layout, seed=seed):
                shutil.rmtree(self.output, ignore_errors=True)
                began = time.monotonic()
                job = start(command_of(self.options(clips, **layout), ranks),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                with delays(job, ranks, seed):
                    outcome = finish(job, began, 120)
                self.assertEqual(outcome.status, 0, outcome)
                self.check_bits(expected)

    @only_long
    def test_the_queue_is_shortened_to_keep_a_limit(self):
        """Embeddings of a few clips wait at a time: phased jobs load the text encoder again."""
        clips = 12
        expected = self.expected(clips)
        for ranks, layout in ((1, {}), (2, {"parallel__replicas": 2}),
                              (3, {"parallel__mode": "split"})):
            with self.subTest(ranks=ranks, layout=layout):
                few = self.planned(self.options(3, **layout), "--ranks", ranks)
                many = self.planned(self.options(clips, **layout), "--ranks", ranks)
                peak = lambda plan: plan["by_rank"][0]["memory"]["peak"]  # all wait on rank 0
                self.assertLess(peak(few), peak(many))
                # Enough for what a rank keeps of each clip, not for the embeddings of all.
                program = lambda plan: plan["by_rank"][0]["memory"]["parts"]["program"]
                limit = peak(few) + program(many) - program(few)
                self.assertLess(limit, peak(many))
                limits = f"{limit},1GiB,1GiB" if "parallel__mode" in layout else limit
                options = self.options(clips, device__memory_limit=limits, **layout)
                tight = self.planned(options, "--ranks", ranks)
                self.assertLess(tight["queue_bytes"], many["queue_bytes"])
                self.assertFalse(tight["offloads"])
                shutil.rmtree(self.output, ignore_errors=True)
                outcome = run(options, ranks)
                self.assertEqual(outcome.status, 0, outcome)
                self.assertIn("queue: at most", outcome.errors)
                self.check_bits(expected)
                loads = len(self.spans(b"load", 0))
                if ranks < 3:  # text encoder, then transformer and decoder
                    rounds = -(-clips // int(clips * tight["queue_bytes"] / many["queue_bytes"]))
                    self.assertEqual(loads, 3 * rounds)


if __name__ == "__main__":
    main()

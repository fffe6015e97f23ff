"""Traces of jobs that end, are stopped or killed, or have no room on the disk for their trace."""

import signal
import subprocess
import time

import h5py
import numpy

from support import (ERROR, LONG, WARNING, Reference, Scratch, check_all_time_is_in_spans, clip_file,
                     command_of, finish, main, programs_of, run, send, start, trace_complete)
from tables import table

STOPPED = 75
BYTES_SENT, CLIPS_WAITING = 10, 11
# A job that no machine ends before it is killed or stopped.
LONG_JOB = {"prompt__text": [f"clip {i}" for i in range(200)], "sample__steps": 1000,
            "restart__every": "none"}


class TraceTest(Scratch):
    def setUp(self):
        super().setUp()
        self.output = self.folder / "output"

    def options(self, **more):
        more = {"prompt__text": ["one", "two", "three"]} | more
        return Reference("rotary").options(self.output, **more)

    def tables(self):
        with h5py.File(self.output / "trace.h5") as file:
            return {name: table(file, name) for name in file}

    def check_sorted(self, tables):
        for name, column in (("spans", "start_ns"), ("counters", "time_ns")):
            rows = tables[name]
            self.assertEqual(rows["rank"].tolist(), sorted(rows["rank"]), name)
            for rank in tables["ranks"]["rank"]:
                times = rows[column][rows["rank"] == rank]
                self.assertTrue((numpy.diff(times) >= 0).all(), (name, rank))
                self.assertTrue((times >= 0).all())

    def check_messages(self, messages, exact=True):
        """Every send has exactly one receive with the same key and bytes."""
        found = ({}, {})
        for row in messages:
            ends = (int(row["rank"]), int(row["peer"]))
            ends = ends if row["direction"] == 0 else ends[::-1]
            key = ends + (int(row["channel"]), int(row["number"]))
            self.assertNotIn(key, found[row["direction"]])
            found[row["direction"]][key] = int(row["bytes"])
        if exact:
            self.assertEqual(found[0], found[1])
        return found[0]

    def check_counters(self, tables, every_message):
        """Against the peaks in the table of memory and, if every message is in that of messages,
        against the bytes of those."""
        counters, messages = tables["counters"], tables["messages"]
        self.assertTrue((counters["max"] >= counters["value"]).all())
        for row in tables["memory"]:
            number = [b"activations", b"weights", b"workspace", b"exchange",
                      b"queue"].index(row["purpose"]) + 5 * (row["place"] == b"device")
            of = counters[(counters["rank"] == row["rank"]) & (counters["counter"] == number)]
            self.assertEqual(of["max"].max(initial=0), row["peak_bytes"], row)
        for rank in tables["ranks"]["rank"]:
            of_rank = counters[counters["rank"] == rank]
            sent = of_rank["value"][of_rank["counter"] == BYTES_SENT]
            self.assertTrue((numpy.diff(sent) > 0).all())
            if every_message:
                control = messages["bytes"] <= 8 * 16  # not counted as sent
                mine = (messages["rank"] == rank) & ~control & (messages["direction"] == 0)
                self.assertLessEqual(messages["bytes"][mine].sum(), sent.max(initial=0))

    def start(self, options, ranks):
        return start(command_of(options, ranks), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def steps(self, rank):
        """Steps of the rank in the trace of a running job; 0 before there is one."""
        if not (self.output / "trace.h5").exists():
            return 0
        spans = self.tables()["spans"]
        return (spans["name"][spans["rank"] == rank] == b"denoise_step").sum()

    def wait_for(self, job, began, condition, timeout=60):
        while not condition():
            self.assertIsNone(job.poll(), "the job has ended already")
            self.assertLess(time.monotonic() - began, timeout)
            time.sleep(0.05)

    def test_messages_and_counters(self):
        # Two ranks denoise together, so messages are hand-overs, attention and control messages.
        layout = {"parallel__mode": "split", "parallel__text": 2, "parallel__decode": 1}
        for level, more in (("ops", layout), ("stages", layout), ("ops", {})):
            with self.subTest(level=level, **more):
                self.make(self.options(trace__level=level, output__if_exists="replace", **more),
                          ranks=5)
                self.assertTrue(trace_complete(self.output))
                self.assertFalse((self.output / "trace").exists())
                check_all_time_is_in_spans(self, self.output)
                tables = self.tables()
                self.check_sorted(tables)
                pairs = self.check_messages(tables["messages"])
                if more:
                    # Embeddings and latents of each clip.
                    handed = tables["messages"]["clip"][tables["messages"]["direction"] == 0]
                    self.assertLessEqual({0, 1, 2}, set(handed))
                    self.assertGreaterEqual(len(pairs), 6)
                counters, ranks = tables["counters"], tables["ranks"]
                self.check_counters(tables, every_message=level == "ops")
                waiting = counters[counters["counter"] == CLIPS_WAITING]
                if more:
                    self.assertGreaterEqual(waiting["value"].max(), 1)
                else:  # rank 0 counts the clips that are not begun
                    self.assertEqual(waiting["value"].tolist()[0], 3)
                    self.assertEqual(set(waiting["rank"]), {0})
                for rank in set(waiting["rank"]):
                    self.assertEqual(waiting["value"][waiting["rank"] == rank][-1], 0)
                measured = level == "ops"
                for column in ("peak_flops_per_s", "peak_memory_bytes_per_s"):
                    self.assertTrue(((ranks[column] > 1e6) == measured).all(), ranks[column])
                self.assertTrue((ranks["predicted_memory_bytes"] > 1 << 20).all())
                self.assertFalse(ranks["memory_limit_bytes"].any())

    def test_memory_limit(self):
        options = self.options(trace__level="stages", device__memory_limit="3GiB")
        self.make(options, ranks=1)
        self.assertEqual(self.tables()["ranks"]["memory_limit_bytes"].tolist(), [3 << 30])

    def test_killed(self):
        """A job of which all ranks are killed leaves what happened until a few seconds before."""
        for mode in ("phased", "split") if LONG else ("split",):
            with self.subTest(mode=mode):
                options = self.options(**LONG_JOB, trace__level="ops", parallel__mode=mode,
                                       output__if_exists="replace")
                began = time.monotonic()
                job = self.start(options, 4)
                denoises = 1  # a rank that denoises in both modes
                self.wait_for(job, began, lambda: self.steps(denoises) > 3)
                before = self.steps(denoises)
                # To the next trace.h5 it takes 100 times as long as to make one: a minute on busy cores.
                self.wait_for(job, time.monotonic(), lambda: self.steps(denoises) > before, 200)
                with h5py.File(self.output / "job.h5") as file:
                    self.assertEqual(len(file["trace/ranks/rank"]), 4)
                send(signal.SIGKILL, programs_of(job.pid, 4))
                killed = time.time()
                self.assertNotEqual(finish(job, began, 60).status, 0)
                self.assertFalse(trace_complete(self.output))
                tables = self.tables()
                self.check_sorted(tables)
                self.check_messages(tables["messages"], exact=False)
                # In split mode the last rank has nothing to decode yet.
                self.assertLessEqual({0, 1, 2} if mode == "split" else {0, 1, 2, 3},
                                     set(tables["spans"]["rank"]))
                self.assertGreater(self.steps(denoises), before)
                spans = tables["spans"][tables["spans"]["rank"] == denoises]
                with h5py.File(self.output / "trace.h5") as file:
                    start = numpy.datetime64(file.attrs["start"].rstrip("Z"))
                    self.assertEqual(file.attrs["level"], "ops")
                last = start + numpy.timedelta64(
                    int((spans["start_ns"] + spans["duration_ns"]).max()), "ns")
                killed = numpy.datetime64(int(killed * 1e9), "ns")
                self.assertLess(killed - last, numpy.timedelta64(15, "s"))
                self.assertGreater(killed - last, numpy.timedelta64(-1, "s"))
        # The next job removes what was left and has a trace of its own.
        self.assertTrue((self.output / "trace").exists())
        self.make(self.options(output__if_exists="resume", sample__steps=2), ranks=2)
        self.assertTrue(trace_complete(self.output))
        self.assertFalse((self.output / "trace").exists())
        self.assertEqual(set(self.tables()["ranks"]["rank"]), {0, 1})

    def test_stopped(self):
        began = time.monotonic()
        job = self.start(self.options(**LONG_JOB), 3)
        self.wait_for(job, began, lambda: self.steps(1) > 3)
        self.assertFalse(trace_complete(self.output))
        job.send_signal(signal.SIGUSR1)
        self.assertEqual(finish(job, began, 60).status, STOPPED)
        self.assertTrue(trace_complete(self.output))
        self.assertFalse((self.output / "trace").exists())
        tables = self.tables()
        self.check_sorted(tables)
        self.assertGreater((tables["spans"]["name"] == b"denoise_step").sum(), 3)

    def test_full_disk(self):
        """Without room for its trace a job goes on, with one warning."""
        parts = self.output / "trace"
        parts.mkdir(parents=True)
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", parts],
                               capture_output=True, text=True)
        if mount.returncode != 0:
            print(f"skipped: {mount.stderr.strip()}", flush=True)
            self.skipTest("no file system can be mounted here")
        try:
            outcome = run(self.options(sample__steps=40, trace__level="ops",
                                       output__if_exists="resume"), 3)
        finally:
            subprocess.run(["umount", parts], check=True)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.lines(ERROR), [], outcome)
        warnings = outcome.lines(WARNING)
        self.assertEqual(len(warnings), 1, outcome)
        self.assertIn("the trace is not complete: rank ", warnings[0])
        self.assertIn("No space left on device", warnings[0])
        self.assertEqual(list(parts.iterdir()), [])
        for clip in range(3):
            self.assertTrue(clip_file(self.output, clip).exists())
        if (self.output / "trace.h5").exists():
            self.assertFalse(trace_complete(self.output))


if __name__ == "__main__":
    main()

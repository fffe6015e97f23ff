#!/usr/bin/python3
"""Tests of tools/reelmesh-trace: its JSON has a schema (trace_event.schema.json), spans nest, and
arrows begin and end in slices.

Ends with status 77 (skipped) if Debian's packages for it are not installed.
"""
import collections
import gzip
import json
import sys
import unittest

try:
    import h5py
    import jsonschema  # noqa: F401
    import matplotlib  # noqa: F401
    import numpy as np
    from PIL import Image
except ImportError as missing:
    print(f"trace_test: passed over: {missing}")
    sys.exit(77)

import results_support
import trace_checks
from results_support import COUNTERS, MESSAGE, RANK, SAMPLE, SPAN
from tables import table, write_table
from tool_support import ToolTest


class Trace(ToolTest):
    tool = "reelmesh-trace"

    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def convert(self, *arguments):
        """The events, after all checks."""
        target = self.folder / "made/trace.json"
        self.said = self.expect(0, self.out, "-o", target, *arguments)
        self.document = json.loads(target.read_text())
        trace_checks.check(self, self.document)
        return self.document["traceEvents"]

    def table(self, name):
        with h5py.File(self.out / "trace.h5") as file:
            return table(file, name)

    def replace(self, name, rows):
        with h5py.File(self.out / "trace.h5", "r+") as file:
            del file[name]
            if rows is not None:
                write_table(file, name, rows)

    def small(self, spans, messages=None, counters=None, ranks=2):
        """A trace of these rows. spans: (rank, lane, name, start, duration)."""
        results_support.write_trace(self.out, ranks, 100)
        rows = np.zeros(len(spans), SPAN)
        for i, (rank, lane, name, start, duration) in enumerate(spans):
            rows[i] = (rank, lane.encode(), name.encode(), -1, -1, -1, start, duration, 0, 0, 0)
        self.replace("spans", rows)
        self.replace("messages", np.array(messages, MESSAGE) if messages else None)
        self.replace("counters", np.array(counters, SAMPLE) if counters else None)

    def lines(self, events):
        """(thread's name, span's name, start, end) of all slices of rank 0, in ns."""
        threads = trace_checks.named(events, "thread")
        return sorted((threads[thread], event["name"], start, end)
                      for thread, one in trace_checks.slices(events).items() if thread[0] == 1000
                      for start, end, event in one)

    # -- the whole --------------------------------------------------------------------------------

    def test_a_traced_job(self):
        results_support.write_job(self.out, spans=3000)
        events = self.convert()
        spans = self.table("spans")
        lanes = [event for event in events if event["ph"] == "X" and event["cat"] != "messages"]
        self.assertEqual(len(lanes), len(spans))
        self.assertEqual(
            collections.Counter((event["pid"] // 1000 - 1, event["cat"], event["name"],
                                 trace_checks.ns(event["ts"]), trace_checks.ns(event["dur"]))
                                for event in lanes),
            collections.Counter((int(row["rank"]), row["lane"].decode(), row["name"].decode(),
                                 int(row["start_ns"]), int(row["duration_ns"])) for row in spans))
        self.assertEqual(lanes[2]["args"], {"clip": 0, "step": 0, "layer": 0, "FLOPs": 40_000_000,
                                            "FLOP/s": 4.444e12, "memory bytes": 300_000})
        self.assertEqual(trace_checks.named(events, "process"), {
            1000 * (rank + 1): f"rank {rank}: text+denoise+decode (node-{'aabb'[rank]}, cpu)"
            for rank in range(4)})
        about = self.document["otherData"]
        self.assertEqual((about["title"], about["version"], about["start"], about["level"]),
                         ("a trace", "0.1.0", "2026-01-31T12:00:01Z", "ops"))
        self.assertIn("spans, 200 arrows between ranks, 600 samples", self.said)

    def test_the_default_output_and_compressed_and_standard_output(self):
        results_support.write_job(self.out, spans=500)
        self.expect(0, self.out)
        plain = (self.out / "trace.json").read_bytes()
        self.expect(0, self.out / "job.h5", "-o", self.folder / "a.json.gz")
        self.assertEqual(gzip.decompress((self.folder / "a.json.gz").read_bytes()), plain)
        self.assertEqual(self.expect(0, self.out / "trace.h5", "-o", "-"), plain.decode())

    def test_a_trace_of_an_earlier_version(self):
        """With compound datasets; without counters, messages and bytes of memory."""
        results_support.write_trace(self.out, 2, 300)
        spans, ranks = self.table("spans"), self.table("ranks")
        with h5py.File(self.out / "trace.h5", "r+") as file:
            for name in ("spans", "ranks", "messages", "counters"):
                del file[name]
            file["spans"] = spans[[name for name in SPAN.names if name != "memory_bytes"]].copy()
            file["ranks"] = ranks[list(RANK.names[:10])].copy()
            for name in list(file.attrs):
                del file.attrs[name]
        events = self.convert()
        self.assertEqual(sum(event["ph"] == "X" for event in events), len(spans))

    def test_an_unfinished_trace_sorted_by_parts(self):
        results_support.write_trace(self.out, 3, 1000)
        self.convert()
        whole = (self.folder / "made/trace.json").read_text()
        spans = self.table("spans")
        parts = [part for rank in range(3)
                 for part in np.array_split(spans[spans["rank"] == rank], 5)[::-1]]
        self.replace("spans", np.concatenate(parts))
        with h5py.File(self.out / "trace.h5", "r+") as file:
            file.attrs.create("complete", 0, dtype="i1")
        self.convert()
        self.assertIn("was killed: the trace has what it had written", self.said)
        self.assertEqual((self.folder / "made/trace.json").read_text(), whole)

    # -- lanes ------------------------------------------------------------------------------------

    def test_spans_that_overlap_go_to_a_second_thread(self):
        self.small([(0, "compute", "a", 0, 100), (0, "compute", "in_a", 10, 90),
                    (0, "compute", "across", 50, 60), (0, "compute", "third", 60, 60),
                    (0, "compute", "after", 100, 5), (0, "compute", "point", 105, 0)])
        self.assertEqual(self.lines(self.convert()), [
            ("compute", "a", 0, 100), ("compute", "after", 100, 105), ("compute", "in_a", 10, 100),
            ("compute", "point", 105, 105), ("compute 2", "across", 50, 110),
            ("compute 3", "third", 60, 120)])

    def test_the_enclosing_span_comes_first_where_both_begin_together(self):
        self.small([(0, "compute", "inner", 5, 10), (0, "compute", "outer", 5, 100)])
        self.assertEqual([one[:2] for one in self.lines(self.convert())],
                         [("compute", "inner"), ("compute", "outer")])

    def test_times_are_exact_to_the_nanosecond(self):
        start = 3_600_000_000_001
        self.small([(0, "file", "write", start, 1_000_000_007)])
        self.assertEqual(self.lines(self.convert()),
                         [("file", "write", start, start + 1_000_000_007)])
        self.assertIn('"ts":3600000000.001,', (self.folder / "made/trace.json").read_text())

    def test_names_are_quoted(self):
        self.small([(0, "compute", 'a"b"\\δ', 0, 5)])
        self.assertEqual(self.lines(self.convert())[0][1], 'a"b"\\δ')

    # -- arrows -----------------------------------------------------------------------------------

    def arrows(self, events):
        """(sender's thread, time, receiver's thread, time) in ns."""
        threads = trace_checks.named(events, "thread")
        ends = {(event["id"], event["ph"]): (event["pid"] // 1000 - 1,
                                             threads[event["pid"], event["tid"]],
                                             trace_checks.ns(event["ts"]))
                for event in events if event["ph"] in "sf"}
        return sorted((ends[id, "s"], ends[id, "f"]) for id, phase in ends if phase == "s")

    def test_arrows_lead_from_spans_of_exchanges_or_from_slices_of_their_own(self):
        message = [(0, 1, 0, 2, 3, 4, 100, 50, 8, 7, 0), (0, 1, 0, 2, 3, 4, 900, 50, 8, 7, 1),
                   (1, 0, 1, 2, 3, 4, 120, 70, 8, 7, 0), (1, 0, 1, 2, 3, 4, 910, 70, 8, 7, 1)]
        self.small([(0, "exchange", "exchange", 90, 70), (1, "exchange", "exchange", 110, 300)],
                   message)
        events = self.convert()
        self.assertEqual(self.arrows(events), [((0, "exchange", 100), (1, "exchange", 189)),
                                               ((0, "messages", 900), (1, "messages", 979))])
        self.assertEqual([one for one in self.lines(events) if one[0] == "messages"],
                         [("messages", "send to rank 1", 900, 950)])
        own = next(event for event in events if event["name"] == "send to rank 1")
        self.assertEqual(own["args"], {"clip": 2, "step": 3, "layer": 4, "bytes": 8})

    def test_keys_pair_sends_and_receives(self):
        """Two channels, both directions, and a receive that is missing."""
        rows = []
        for channel in (5, 2 ** 40):
            for number in range(3):
                at = 1000 * number + (500 if channel > 5 else 0)
                rows += [(0, 1, 0, 0, 0, 0, at, 10, 8, channel, number),
                         (1, 0, 1, 0, 0, 0, at + 20, 10, 8, channel, number),
                         (1, 0, 0, 0, 0, 0, at + 40, 10, 8, channel, number),
                         (0, 1, 1, 0, 0, 0, at + 60, 10, 8, channel, number)]
        missing = rows.pop(1)
        rows.sort(key=lambda row: (row[0], row[6]))
        self.small([], rows)
        arrows = self.arrows(self.convert())
        self.assertEqual(len(arrows), 11)
        for send, receive in arrows:
            self.assertEqual(receive[2] - send[2], 29)
            self.assertEqual(receive[0], 1 - send[0])
        self.assertNotIn(missing[6] + 9, [receive[2] for _, receive in arrows if receive[0] == 1])

    def test_no_arrow_back_in_time(self):
        self.small([], [(0, 1, 0, 0, 0, 0, 500, 10, 8, 1, 0), (1, 0, 1, 0, 0, 0, 100, 10, 8, 1, 0)])
        self.assertEqual(self.arrows(self.convert()), [])
        self.assertIn("1 messages have no arrow", self.said)

    # -- counters ---------------------------------------------------------------------------------

    def test_counters(self):
        number = {name: i for i, name in enumerate(COUNTERS)}
        self.small([(0, "compute", "a", 0, 10)], counters=[
            (0, number["HOST_ACTIVATIONS"], 1000, 10, 12), (0, number["HOST_WEIGHTS"], 1000, 7, 7),
            (0, number["BYTES_SENT"], 1000, 100, 100), (0, number["HOST_ACTIVATIONS"], 2000, 5, 20),
            (0, number["BYTES_SENT"], 3000, 500, 500), (0, number["CLIPS_WAITING"], 3000, 2, 4)])
        found = collections.defaultdict(list)
        for event in self.convert():
            if event["ph"] == "C":
                found[event["name"]].append((event["ts"], event["args"]))
        self.assertEqual(found, {
            "host memory (bytes)": [(1, {"activations": 10, "weights": 7}),
                                    (2, {"activations": 5, "weights": 7})],
            "host memory, largest since the last sample (bytes)": [
                (1, {"activations": 12, "weights": 7}), (2, {"activations": 20, "weights": 7})],
            "bytes sent": [(1, {"total": 100}), (3, {"total": 500})],
            "sending (bytes/s)": [(1, {"rate": 2e8}), (3, {"rate": 0})],
            "clips waiting": [(3, {"clips": 2})]})

    # -- parts ------------------------------------------------------------------------------------

    def test_ranks_times_and_levels(self):
        results_support.write_trace(self.out, 6, 3000)
        events = self.convert("--rank", "0-1,4", "--rank", "5")
        self.assertEqual(sorted(trace_checks.named(events, "process")), [1000, 2000, 5000, 6000])
        begin, end = 100_000, 500_000
        spans = [event for event in self.convert("--from", "0.0001", "--to", "0.0005s")
                 if event["ph"] == "X" and event["cat"] != "messages"]
        rows = self.table("spans")
        inside = (rows["start_ns"] < end) & (rows["start_ns"] + rows["duration_ns"] > begin)
        self.assertEqual(len(spans), inside.sum())
        self.assertEqual({event["name"] for event in self.convert("--level", "stages")
                          if event["ph"] == "X"}, {"denoise_step"})
        self.assertEqual({event["name"] for event in self.convert("--level", "layers")
                          if event["ph"] == "X"}, {"denoise_step", "transformer_block"})

    def test_timelines_of_jobs_are_one_below_the_other(self):
        wide, picture = 0, self.folder / "made" / "both.png"
        for outs in ((self.out,), (self.out, self.folder / "other")):
            for i, out in enumerate(outs):
                results_support.write_trace(out, 3 + 97 * i, 100)
            said = self.expect(0, *outs, "--picture", picture)
            self.assertIn(str(picture), said)
            with Image.open(picture) as image:
                self.assertGreater(image.height, wide + 100)
                wide = image.height
                colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
            self.assertIn((0x2f, 0x6f, 0xc0), colours, "denoise_step")
        self.refused(66, "has no trace.h5", self.out, self.folder, "--picture", picture)
        self.refused(64, "expected one without --picture", self.out, self.out)

    def test_wrong_use(self):
        results_support.write_trace(self.out, 2, 100)
        self.refused(66, "no rank 2; the trace has 2 ranks", self.out, "--rank", "1-2")
        for arguments, part in ((("--rank", "x"), "expected ranks such as 0-3,7"),
                                (("--rank", "3-1"), "expected ranks"),
                                (("--from", "soon"), "expected seconds"),
                                (("--to", "nan"), "expected seconds"),
                                (("--from", "2", "--to", "1"), "expected a later time"),
                                (("--level", "all"), "invalid choice")):
            self.refused(64, part, self.out, *arguments)
        (self.out / "trace.h5").unlink()
        self.refused(66, "has no trace.h5; was the job run with trace.level = off?", self.out)
        results_support.write_clip(self.out, 0, results_support.moving_square(1, 16, 16, 0))
        self.refused(65, "has no /spans", self.out / "clips/000000.h5", "-o", "-")


if __name__ == "__main__":
    unittest.main(verbosity=2)

#!/usr/bin/python3
"""Files made by others: the functions with which all tools read files refuse what would make them
read another file, crash, or never end. bad_files_test.py has what can happen to a file by accident.

Ends with status 77 (skipped) if Debian's packages for the tools are not installed.
"""
import json
import os
import shutil
import sys
import unittest

try:
    import h5py  # noqa: F401
    import numpy  # noqa: F401
except ImportError as missing:
    print(f"untrusted_files_test: passed over: {missing}")
    sys.exit(77)

import damages
import results_support
from tool_support import ToolTest

from reelmesh_results import (  # found by tool_support
    clips, comparison, hdf5, index, strict_json, trace)


def read_clip(path):
    with clips.Clip(path) as clip:
        for frame in range(clip.frames):
            clip.frame(frame)


def read_trace(path):
    with trace.Trace(path) as found:
        for blocks in (found.spans(), found.messages(), found.counters()):
            for _ in blocks:
                pass


# File → what reads it, and pairs of what damages it and a part of the message.
ELSEWHERE = "has its values in other files"
LINK = "/video is a link to another place"
CHUNK = "has a chunk at [0, 0, 0, 0] that does not give 3072 bytes"
NO_PLAN = "its attribute plan_json is not a plan: "
CASES = {
    "clips/000001.h5": (read_clip, (
        (damages.values_in_another_file, ELSEWHERE),
        (damages.a_virtual_dataset, ELSEWHERE),
        (damages.a_link_to_another_file, LINK),
        (damages.a_link_within_the_file, LINK),
        (damages.a_chunk_of_2_bytes, CHUNK),
        (damages.a_short_chunk_without_filters, CHUNK),
        (damages.a_chunk_that_inflates_to_less, CHUNK),
        (damages.terabytes_that_are_missing, "/video has 0 of 1000000 chunks"))),
    "job.h5": (index.Index, (
        (damages.provenance_in_another_file, "/provenance is a link to another place"),
        (damages.a_deep_plan, NO_PLAN + "more than 64 arrays and objects are nested"),
        (damages.a_plan_of_another_type, NO_PLAN),
        (damages.a_plan_of_many_ranks, NO_PLAN + "ranks that denoise are not between"),
        (damages.a_plan_of_many_groups, NO_PLAN + "ranks that denoise are not between"),
        (damages.a_clip_below_zero, "it has clips -5 to "),
        (damages.a_clip_beyond_a_million, " to 1000000, expected numbers from 0 to 999999"),
        (damages.a_deep_request, "more than 64 arrays and objects are nested"),
        (damages.a_request_with_infinity, "found Infinity, expected a number"),
        (damages.a_trillion_requests, "has 1000000000000 texts, which the file cannot hold"))),
    "trace.h5": (read_trace, (
        (damages.a_trillion_spans, "/spans/rank has 0 of "),
        (damages.a_span_at_the_end_of_time, "expected times within half a year"),
        (damages.a_span_before_time, "expected times within half a year"),
        (damages.times_that_are_texts, "/spans has |S8 as start_ns, expected whole numbers"))),
}


class UntrustedFiles(ToolTest):
    def setUp(self):
        super().setUp()
        self.good, self.out, self.to = (self.folder / name for name in ("good", "out", "to"))
        results_support.write_job(self.good, clips=2, spans=200, ranks=2, frames=2, height=32,
                                  width=32)

    def restore(self):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.good, self.out)

    def test_are_refused(self):
        for name, (read, cases) in CASES.items():
            read(self.good / name)
            for damage, part in cases:
                with self.subTest(file=name, damage=damage.__name__):
                    self.restore()
                    damage(self.out / name)
                    with self.assertRaises(hdf5.Damaged) as refused:
                        read(self.out / name)
                    self.assertIn(part, str(refused.exception))

    def test_are_not_compared(self):
        for damage in (damages.values_in_another_file, damages.a_link_to_another_file,
                       damages.a_chunk_of_2_bytes):
            with self.subTest(damage=damage.__name__):
                self.restore()
                path = self.out / "clips/000001.h5"
                damage(path)
                with self.assertRaises(hdf5.Damaged):
                    comparison.clips(self.good / "clips/000001.h5", path)

    def test_nothing_of_another_file_is_exported(self):
        self.restore()
        path = self.out / "clips/000001.h5"
        damages.values_in_another_file(path)
        self.refused(65, f"{path}: /video {ELSEWHERE}", self.out, "--clip", 1, "--to",
                     self.to, "--format", "npy,safetensors", tool="reelmesh-export")
        for written in self.to.rglob("*"):
            self.assertNotIn(damages.SECRET, written.read_bytes())

    def test_status_json(self):
        self.restore()
        path = self.out / "status.json"
        with self.assertRaises(FileNotFoundError):
            strict_json.of_file(path)
        for content, part in (("[" * 100000, "nested"), ("[" * 100 + "]" * 100, "nested"),
                              ("{", "Expecting"), ('{"a": NaN}', "found NaN"),
                              ('"\\ud800"', "surrogates not allowed")):
            with self.subTest(content=content[:10]):
                path.write_text(content)
                with self.assertRaisesRegex(ValueError, part):
                    strict_json.of_file(path)
        with path.open("w") as file:
            os.truncate(file.fileno(), strict_json.MAX_BYTES + 1)
        with self.assertRaisesRegex(ValueError, "more than 64 MiB"):
            strict_json.of_file(path)
        path.write_text(json.dumps({"updated": "2026-01-31T12:00:00Z"}))
        self.assertIn("updated", strict_json.of_file(path))
        path.unlink()
        os.mkfifo(path)
        with self.assertRaisesRegex(ValueError, "not a regular file"):
            strict_json.of_file(path)

    def test_tools_say_it_once(self):
        def endless(path):
            path.symlink_to("/dev/zero")
        for tool, arguments, name, damage, status in (
                ("reelmesh-report", ["--text"], "job.h5", damages.a_deep_plan, 65),
                ("reelmesh-report", ["--text"], "job.h5", damages.a_trillion_requests, 65),
                ("reelmesh-report", ["--text"], "job.h5", damages.a_plan_of_many_groups, 65),
                ("reelmesh-report", ["--text"], "job.h5", damages.a_clip_below_zero, 65),
                ("reelmesh-report", ["--text"], "status.json", endless, 65),
                ("reelmesh-trace", [], "trace.h5", damages.a_span_at_the_end_of_time, 65)):
            with self.subTest(tool=tool, damage=damage.__name__):
                self.restore()
                damage(self.out / name)
                self.refused(status, self.out / name, self.out, *arguments, tool=tool)


if __name__ == "__main__":
    unittest.main(verbosity=2)

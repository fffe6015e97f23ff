#!/usr/bin/python3
"""tools/compare_with_pytorch: its arithmetic and its errors; PyTorch is not needed."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/compare_with_pytorch"
loader = importlib.machinery.SourceFileLoader("compare", str(TOOL))
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
loader.exec_module(compare)


def run(*words):
    done = subprocess.run([sys.executable, "-B", TOOL, *words], text=True, capture_output=True)
    return done.returncode, done.stdout + done.stderr


class Compare(unittest.TestCase):
    def test_the_fastest_span_of_a_stage_counts(self):
        spans = [("load", 9e9), ("encode", 3e9), ("encode", 2e9), ("denoise_step", 1e9)]
        self.assertEqual(compare.stages_of(spans), {"encode": 2.0, "denoise_step": 1.0})

    def test_ratios_are_taken_turn_by_turn(self):
        # The machine is three times slower in the third turn; each turn's ratio knows nothing of it.
        turns = [({"encode": a}, 4 << 30, {"encode": b}, 2 << 30)
                 for a, b in ((2.0, 1.0), (2.2, 1.0), (6.0, 3.0))]
        text, memory = compare.table(turns)[1:]
        self.assertEqual(text.split(), ["text", "encoder", "2.200", "s", "1.000", "s", "2.00",
                                        "2.00", "to", "2.20"])
        self.assertEqual(memory.split()[-1], "2.00")

    def test_a_stage_that_one_did_not_run_is_left_out(self):
        lines = compare.table([({"encode": 1, "decode": 1}, 1, {"encode": 1}, 1)])
        self.assertEqual(len(lines), 3)

    def test_cores(self):
        self.assertEqual(compare.cores_of("0-2,5"), {0, 1, 2, 5})
        status, text = run("--cores", "one")
        self.assertEqual(status, 64)
        self.assertIn("is not a list of cores", text)
        status, text = run("--cores", str(max(os.sched_getaffinity(0)) + 1000))
        self.assertEqual(status, 64)
        self.assertIn("may be used", text)

    def test_what_is_missing_is_named(self):
        status, text = run("--reelmesh", "/none")
        self.assertEqual(status, 69)
        self.assertIn("/none: not found", text)
        self.assertEqual(run("--turns", "0")[0], 64)


if __name__ == "__main__":
    unittest.main()

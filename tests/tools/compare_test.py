#!/usr/bin/python3
"""Tests of tools/compare_with_pytorch: its arithmetic and its errors. Does not need PyTorch."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

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
        # The machine is three times slower in the third turn, which no ratio within a turn shows.
        turns = [({"encode": a}, 4 << 30, {"encode": b}, 2 << 30)
                 for a, b in ((2.0, 1.0), (2.2, 1.0), (6.0, 3.0))]
        text, memory = compare.table(turns)[1:]
        self.assertEqual(text.split(), ["text", "encoder", "2.200", "s", "1.000", "s", "2.00",
                                        "2.00", "to", "2.20"])
        self.assertEqual(memory.split()[-1], "2.00")

    def test_a_stage_that_one_did_not_run_is_left_out(self):
        lines = compare.table([({"encode": 1, "decode": 1}, 1, {"encode": 1}, 1)])
        self.assertEqual(len(lines), 3)

    def test_first_calls_on_a_gpu_do_not_count(self):
        spans = [("load", -1, 9e9), ("encode", -1, 9e9), ("encode", -1, 2e9), ("encode", -1, 4e9)]
        for clip in (0, 1):
            spans += [("denoise_step", step, (9 if step < 3 else step + clip) * 1e9)
                      for step in range(5)]
        spans += [("decode", -1, 7e9)]
        self.assertEqual(compare.later_spans(spans),
                         {"encode": 3.0, "denoise_step": 4.0, "decode": 7.0})

    def test_averages_of_the_closing_table(self):
        text = "load 1 0.03 s 0.03 s 0.03 s 0.01\ndenoise_step      1  0.96 s  0.96 s  0.96 s  0.1195"
        self.assertEqual(compare.averages(text + "\n2 clips in 2 s\n\n"), {"denoise_step": 0.1195})

    def test_the_table_of_a_gpu(self):
        turns = [{"eager": {"denoise_step": 2.0, "decode": 3.0}, "compiled": {"denoise_step": 1.5},
                  "reelmesh": {"denoise_step": ours}} for ours in (1.0, 0.5)]
        lines = compare.gpu_table(turns)
        self.assertEqual(lines[2], "| transformer step | 2 s | 1.5 s | 0.75 s | 2.00 to 4.00 | "
                                   "1.50 to 3.00 |")
        self.assertEqual(lines[3], "| decode | 3 s |  |  |  |  |")
        self.assertEqual(len({line.count("|") for line in
                              [*lines, compare.memory_row("a", 4 << 30, 2 << 30)]}), 1)
        self.assertIn("| 2.00 |", compare.memory_row("a", 4 << 30, 2 << 30))
        self.assertNotIn("0.00", compare.memory_row("a", 4 << 30, 0))

    def test_what_each_device_is_given_unless_asked_otherwise(self):
        cpu, gpu = compare.parse([]), compare.parse(["--device", "cuda", "--layers", "3"])
        self.assertEqual((cpu.layers, cpu.frames, cpu.turns), (2, 9, 3))
        self.assertEqual((gpu.layers, gpu.text_layers, gpu.frames, gpu.height), (3, None, 49, 480))
        self.assertEqual(gpu.model.name, "cogvideox-2b-layers3")
        status, text = run("--device", "cuda", "--steps", "3")
        self.assertEqual(status, 64)
        self.assertIn("--steps is at least 4", text)
        status, text = run("--dtype", "float16")
        self.assertEqual(status, 64)
        self.assertIn("float16 is for --device cuda", text)

    def test_what_pytorch_could_not_do_is_said(self):
        lines = compare.remarks({
            "notes": ["decode (eager): OutOfMemoryError: no"], "versions": {"torch": "2"},
            "memory": {"encode": 1 << 30}, "compilation": 61.2,
            "attention": {"shape": "2 x 30 x 9 x 64", "ms": {"flash": 1.0, "cudnn": "no kernel"}}})
        self.assertEqual(lines, [
            "PyTorch: decode (eager): OutOfMemoryError: no", "torch 2",
            "PyTorch's memory: encode 1.00 GiB", "torch.compile and its steps took 61 s",
            "PyTorch's attention of 2 x 30 x 9 x 64: flash 1.000 ms, cudnn (no kernel)"])
        self.assertEqual(compare.remarks({}), [])

    def test_on_a_gpu_one_may_fail(self):
        self.assertIsNone(compare.tried("PyTorch", compare.fail, 70, "no diffusers"))
        self.assertEqual(compare.tried("PyTorch", lambda x: x, 5), 5)
        self.assertIn("/none/nvidia-smi: ", compare.first_line("/none/nvidia-smi"))

    def test_memory_of_a_gpu_is_watched(self):
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder, "nvidia-smi")
            for answer, expected in (("300", 300 << 20), ("No devices were found", 0)):
                tool.write_text(f"#!/bin/sh\necho '{answer}'\n")
                tool.chmod(0o755)
                with unittest.mock.patch.dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"):
                    with compare.MemoryOfGpu() as gpu:
                        time.sleep(0.5)
                self.assertEqual(gpu.peak, expected)

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

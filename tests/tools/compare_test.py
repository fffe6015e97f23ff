#!/usr/bin/python3
"""Tests of tests/bench/compare_with_pytorch: its arithmetic, its errors, and what it prints of processes
that end early. Does not need PyTorch: a script stands in for it, and another one for reelmesh."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tests/bench/compare_with_pytorch"
loader = importlib.machinery.SourceFileLoader("compare", str(TOOL))
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
loader.exec_module(compare)


def run(*words):
    done = subprocess.run([sys.executable, "-B", TOOL, *words], text=True, capture_output=True)
    return done.returncode, done.stdout + done.stderr


def turn(**kinds):
    made = compare.Turn("turn")
    for kind, stages in kinds.items():
        made.seconds[kind] = stages
    return made


def call(stage, seconds, kind="eager"):
    return json.dumps({"stage": stage, "kind": kind, "seconds": seconds})


def end(stage, kind="eager"):
    return json.dumps({"stage": stage, "kind": kind, "bytes": 1 << 30, "reserved": 2 << 30})


class Arithmetic(unittest.TestCase):
    def test_first_calls_do_not_count(self):
        spans = [("load", -1, -1, 9e9), ("encode", 0, -1, 9e9), ("encode", 0, -1, 2e9),
                 ("encode", 1, -1, 4e9)]
        spans += [("denoise_step", clip, step, (9 if step < 3 else step) * 1e9)
                  for clip, steps in ((0, 5), (1, 1)) for step in range(steps)]
        spans += [("decode", 0, -1, 7e9), ("decode", 1, -1, 5e9)]
        options = compare.parse(["--steps", "2"])
        self.assertEqual(compare.counted(spans, options), {
            "denoise_step": [3.0, 4.0], "encode": [2.0, 4.0], "decode": [5.0]})
        options = compare.parse(["--no-encode", "--no-decode"])
        self.assertEqual(compare.counted(spans, options), {"denoise_step": [3.0, 4.0]})

    def test_clips_of_a_turn(self):
        def steps(*words):
            lines = compare.clips_of(compare.parse(words)).splitlines()
            return [json.loads(line)["steps"] for line in lines]

        self.assertEqual(steps(), [11, 1, 1])
        self.assertEqual(steps("--steps", "2", "--no-decode"), [5, 1, 1])
        self.assertEqual(steps("--no-encode", "--no-decode"), [11])

    def test_ratios_are_taken_turn_by_turn(self):
        # The machine is three times slower in the third turn, which no ratio within a turn shows.
        turns = [turn(eager={"encode": [a, 9.0, a]}, reelmesh={"encode": [b]})
                 for a, b in ((2.0, 1.0), (2.2, 1.0), (6.0, 3.0))]
        peaks = compare.Peaks()
        for gib in (3, 4):
            peaks.add("process", "pytorch", gib << 30)
        peaks.add("process", "reelmesh", 2 << 30)
        peaks.add("nvidia-smi", "pytorch", 0)
        self.assertEqual(compare.table(turns, peaks), [
            "| work | PyTorch, eager | reelmesh | eager / reelmesh |",
            "| --- | ---: | ---: | ---: |",
            "| text encoder | 2.2 s (2 to 9) | 1 s (1 to 3) | 2.00 (2.00 to 2.20) |",
            "| memory, peak: process | 4.00 GiB | 2.00 GiB | 2.00 |"])

    def test_a_stage_that_one_side_did_not_run_has_no_ratio(self):
        turns = [turn(eager={"denoise_step": [2.0], "decode": [3.0]},
                      compiled={"denoise_step": [1.5]}, reelmesh={"denoise_step": [ours]})
                 for ours in (1.0, 0.5)]
        lines = compare.table(turns, compare.Peaks())
        self.assertEqual(lines[2:], [
            "| transformer step | 2 s (2 to 2) | 1.5 s (1.5 to 1.5) | 0.75 s (0.5 to 1) | "
            "3.00 (2.00 to 4.00) | 2.25 (1.50 to 3.00) |",
            "| decode | 3 s (3 to 3) |  |  |  |  |"])

    def test_a_table_of_one_side(self):
        peaks = compare.Peaks()
        peaks.add("process", "reelmesh", 1 << 30)
        self.assertEqual(compare.table([turn(reelmesh={"decode": [2.0]})], peaks), [
            "| work | reelmesh |", "| --- | ---: |", "| decode | 2 s (2 to 2) |",
            "| memory, peak: process | 1.00 GiB |"])
        peaks = compare.Peaks()
        peaks.add("process", "pytorch", 1 << 30)
        self.assertEqual(compare.table([turn(eager={"decode": [2.0]})], peaks)[3:],
                         ["| memory, peak: process | 1.00 GiB |"])

    def test_kernels_and_warnings_stand_below_the_figures(self):
        first, second = turn(compiled={"denoise_step": [2.0]}), turn(reelmesh={"denoise_step": [1.0]})
        first.remark("kernels", "compiled", "2 ms in 3 of f(a | b)")
        for _ in range(2):
            first.remark("warning", "reelmesh", "no graph")
            second.remark("warning", "reelmesh", "no graph")
        second.remark("warning", "reelmesh", "padded rows")
        self.assertEqual(compare.table([first, second], compare.Peaks())[3:], [
            "| kernels | 2 ms in 3 of f(a \\| b) |  |  |",
            "| warning |  | no graph; padded rows |  |"])

    def test_averages_of_the_closing_table(self):
        text = ("load  1  0.03 s  0.03 s  0.03 s  1  30 ms\n"
                "denoise_step  1  0.96 s  0.96 s  0.96 s  8  119.5 ms\n"
                "decode  1  3.00 s  3.00 s  3.00 s  2  1.50 s\n2 clips in 2 s\n\n")
        self.assertEqual(compare.averages(text, compare.parse([])),
                         {"denoise_step": [0.1195], "decode": [1.5]})

    def test_what_pytorch_says_beside_times(self):
        def said(**found):
            return list(compare.remarks(found))

        self.assertEqual(said(note="no decode: no"), ["PyTorch: no decode: no"])
        self.assertEqual(said(versions={"torch": "2", "GPU": "H"}), ["torch 2, GPU H"])
        self.assertEqual(said(compilation=61.2), ["PyTorch: the first compiled step took 61 s"])
        self.assertEqual(said(attention="cudnn", shape="2 x 9", ms=1.0),
                         ["PyTorch's attention of 2 x 9, cudnn: 1.000 ms"])
        self.assertEqual(said(attention="cudnn", shape="2 x 9", error="no kernel"),
                         ["PyTorch's attention of 2 x 9, cudnn: no kernel"])

    def test_cores(self):
        self.assertEqual(compare.cores_of("0-2,5"), {0, 1, 2, 5})


class Options(unittest.TestCase):
    def test_what_each_device_is_given_unless_asked_otherwise(self):
        cpu, gpu = compare.parse([]), compare.parse(["--device", "cuda", "--layers", "3"])
        self.assertEqual((cpu.layers, cpu.frames, cpu.turns, cpu.steps, cpu.compile),
                         (2, 9, 3, 8, "no"))
        self.assertEqual((gpu.layers, gpu.text_layers, gpu.frames, gpu.height, gpu.compile),
                         (3, None, 49, 480, "blocks"))
        self.assertEqual(gpu.model.name, "cogvideox-2b-layers3")

    def test_wrong_options(self):
        status, text = run("--dtype", "float16")
        self.assertEqual(status, 64)
        self.assertIn("float16 is for --device cuda", text)
        status, text = run("--cores", "one")
        self.assertEqual(status, 64)
        self.assertIn("is not a list of cores", text)
        status, text = run("--cores", str(max(os.sched_getaffinity(0)) + 1000))
        self.assertEqual(status, 64)
        self.assertIn("may be used", text)
        self.assertEqual(run("--turns", "0")[0], 64)
        status, text = run("--reelmesh", "/none")
        self.assertEqual(status, 69)
        self.assertIn("/none: not found", text)


class Processes(unittest.TestCase):
    """The whole tool with scripts in place of reelmesh and of the Python with PyTorch."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "model").mkdir()
        (self.folder / "model/model_index.json").write_text("{}")
        self.script("reelmesh", "case $1 in --version) echo reelmesh 1; exit ;; esac\nexit 3")
        self.reelmesh = self.folder / "reelmesh"

    def script(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def pytorch(self, *lines, then=""):
        said = "".join(f"echo '{line}'\n" for line in lines)
        return self.script("python", f"{said}{then}")

    def start(self, *words):
        child = subprocess.Popen(
            [sys.executable, "-B", TOOL, "--model", self.folder / "model", "--reelmesh",
             self.reelmesh, "--python", self.folder / "python", "--dtype", "float32", *words],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}"))
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def run_tool(self, *words):
        child = self.start(*words)
        text = child.communicate(timeout=60)[0]
        return child.returncode, text

    def read_until(self, child, what):
        for line in child.stdout:
            if what in line:
                return line
        self.fail(f"ended without '{what}'")

    def test_figures_come_while_the_process_runs_and_stay_when_the_tool_is_ended(self):
        os.mkfifo(self.folder / "never")  # nobody writes to it, so the script does not end
        self.pytorch(call("denoise_step", 2.0), call("encode", 0.5), call("encode", 0.75),
                     end("encode"), then=f"read word <'{self.folder}/never'")
        child = self.start("--only", "pytorch")
        self.assertEqual(self.read_until(child, "text encoder"),
                         "turn 1 of 3: text encoder, PyTorch, eager: "
                         "0.625 s (0.5 to 0.75, 2 calls)\n")
        child.send_signal(signal.SIGTERM)
        text = child.communicate(timeout=60)[0]
        self.assertEqual(child.returncode, 130, text)
        self.assertIn("turn 1 of 3: transformer step, PyTorch, eager: 2 s (1 call)\n", text)
        self.assertIn("| text encoder | 0.625 s (0.5 to 0.75) |\n", text)
        self.assertIn("ended by a signal", text)

    def test_what_a_killed_process_had_reported_counts(self):
        self.pytorch(call("encode", 0.5), end("encode"), "words of a library", "[1]",
                     call("denoise_step", 2.0), then="kill -9 $$")
        status, text = self.run_tool("--only", "pytorch", "--turns", "1")
        self.assertEqual(status, 0, text)
        self.assertIn("ended with -9", text)
        self.assertIn("| text encoder | 0.5 s (0.5 to 0.5) |", text)
        self.assertIn("| transformer step | 2 s (2 to 2) |", text)

    def test_one_side_may_fail(self):
        self.pytorch(call("encode", 0.5), end("encode"))
        status, text = self.run_tool("--turns", "1")
        self.assertEqual(status, 0, text)
        self.assertIn("reelmesh run … ended with 3", text)
        self.assertIn("| text encoder | 0.5 s (0.5 to 0.5) |", text)

    def test_nothing_measured_is_a_failure(self):
        self.pytorch(then="echo no torch >&2\nexit 1")
        status, text = self.run_tool("--turns", "2")
        self.assertEqual(status, 70, text)
        self.assertIn("no torch", text)
        self.assertEqual(text.count("ended with 3"), 1)  # the second turn is not tried
        self.assertNotIn("| work |", text)

    def test_both_sides(self):
        try:
            import h5py
            import numpy
            from tables import write_table
        except ImportError as error:
            self.skipTest(f"{sys.executable}: {error}")
        with h5py.File(self.folder / "trace.h5", "w") as trace:
            rows = [(b"encode", 0, -1, 9e9), (b"encode", 0, -1, 1e9)]
            rows += [(b"denoise_step", 0, step, 1e9 if step < 3 else 5e8) for step in range(5)]
            write_table(trace, "spans", numpy.array(rows, dtype=[
                ("name", "S16"), ("clip", "i4"), ("step", "i4"), ("duration_ns", "i8")]))
            write_table(trace, "ranks", numpy.array(
                [(3 << 30,)], dtype=[("peak_device_memory_bytes", "i8")]))
        self.reelmesh = self.script("reelmesh", f"""
            [ "$1" = run ] || {{ echo reelmesh 1; exit; }}
            while [ "$1" != --output.path ]; do shift; done
            echo 'denoising: 3 of 5 steps (60 %), 2.00 steps/s' >&2
            echo 'reelmesh: warning: clip 0: the prompt has more than 9 tokens; cut off: it' >&2
            echo 'reelmesh: warning: steps run without a CUDA graph, because of memory' >&2
            echo 'GPU kernels: attention: own kernels; products: cuBLASLt 13'
            echo '8 matrix products were computed with padded rows, which is slower: no algorithm'
            mkdir "$2" && cp '{self.folder}/trace.h5' "$2"/""")
        self.script("nvidia-smi", "echo 300\ncase $* in *--loop*) exec sleep 100 ;; esac")
        self.pytorch(call("denoise_step", 1.0), end("denoise_step"),
                     call("denoise_step", 0.6, "compiled"), end("denoise_step", "compiled"),
                     json.dumps(dict(kernel="gemm", kind="compiled", ms=1.5, calls=4)))
        status, text = self.run_tool("--device", "cuda", "--turns", "2", "--no-encode")
        self.assertEqual(status, 0, text)
        self.assertIn("turn 2 of 2: reelmesh, denoising: 3 of 5 steps", text)
        self.assertIn("turn 2 of 2: transformer step, reelmesh: 0.5 s (0.5 to 0.5, 2 calls)", text)
        self.assertIn("| transformer step | 1 s (1 to 1) | 0.6 s (0.6 to 0.6) | "
                      "0.5 s (0.5 to 0.5) | 2.00 (2.00 to 2.00) | 1.20 (1.20 to 1.20) |\n", text)
        self.assertIn("| memory, peak: tensors | 1.00 GiB |  | 3.00 GiB | 0.33 |  |\n", text)
        self.assertNotIn("| text encoder |", text)
        self.assertIn("| kernels |  | 1.5 ms in 4 of gemm | "
                      "attention: own kernels; products: cuBLASLt 13 |  |  |\n", text)
        self.assertIn("| warning |  |  | steps run without a CUDA graph, because of memory; 8 matrix "
                      "products were computed with padded rows, which is slower: no algorithm |  "
                      "|  |\n", text)
        self.assertIn("turn 2 of 2: warning, reelmesh: steps run without", text)


class GpuMemory(unittest.TestCase):
    def test_one_process_is_asked(self):
        try:
            for end in os.openpty():
                os.close(end)
        except OSError as error:
            self.skipTest(f"no terminals, which make nvidia-smi write each line at once: {error}")
        with tempfile.TemporaryDirectory() as folder:
            tool, starts = pathlib.Path(folder, "nvidia-smi"), pathlib.Path(folder, "starts")
            # Answers come before the end of the process, as nvidia-smi's with --loop.
            for answers, expected in (("200 300 100", 300 << 20), ("None", 0)):
                starts.write_text("")
                tool.write_text(f"#!/bin/sh\necho $* >>{starts}\n"
                                f"for used in {answers}; do echo $used; done\nexec sleep 100\n")
                tool.chmod(0o755)
                with unittest.mock.patch.dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}",
                                              CUDA_VISIBLE_DEVICES="2,3"):
                    with compare.MemoryOfGpu() as gpu:
                        deadline = time.monotonic() + 20
                        while gpu.peak < expected and time.monotonic() < deadline:
                            time.sleep(0.05)
                self.assertEqual(gpu.peak, expected)
                if expected:
                    self.assertEqual(starts.read_text().count("--loop=1"), 1)
                    self.assertIn("--id=2 ", starts.read_text())

    def test_without_nvidia_smi(self):
        with unittest.mock.patch.dict(os.environ, PATH="/none"):
            with compare.MemoryOfGpu() as gpu:
                pass
        self.assertEqual(gpu.peak, 0)
        self.assertIn("/none/nvidia-smi: ", compare.first_line("/none/nvidia-smi"))


if __name__ == "__main__":
    unittest.main()

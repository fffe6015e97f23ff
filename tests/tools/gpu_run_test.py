#!/usr/bin/python3
"""Tests of tests/gpu/run with stand-ins for the programs, nvidia-smi and Nsight Compute: the order
of its parts, what it brings back, what it calls a failure; and of the scripts that it calls."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def imported(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tests/gpu/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


monitor, times_of = imported("monitor"), imported("times_of")

REELMESH = """
echo "reelmesh $*" >>CALLS
case $1 in
  --version) echo reelmesh 1 ;;
  make-model) mkdir -p "$3"; echo {} >"$3/model_index.json" ;;
  run)
    while [ "$1" != --output.path ]; do shift; done
    mkdir -p "$2"; [ ! -f FOLDER/trace.h5 ] || cp FOLDER/trace.h5 "$2"; touch "$2/trace.h5"
    cat FOLDER/log >&2 ;;
esac
"""
TESTS = """
echo "${0##*/} $*" >>CALLS
case $* in
  *list_tests*) printf 'First.\\n  One\\nSecond.\\n  Two\\n' ;;
  *ConvolutionTruth.Agrees*) echo '[==========] 0 tests from 0 test suites ran.' ;;
  *) echo 'One, fused attention: error 0.1 of the largest'; echo '[  PASSED  ] 1 test.' ;;
esac
"""
BENCH = """
echo "bench_gpu $*" >>CALLS
case $* in
  *--help*) echo 'expected --products, --attention, --once' ;;
  *) echo '| a row |' ;;
esac
"""
SMI = """
echo "nvidia-smi $*" >>CALLS
case $* in
  *throttle*) ;;
  *event_reasons*) echo 'Field "clocks_event_reasons.active" is not valid.'; exit 2 ;;
  *) echo name; exit ;;
esac
echo '1755, 2619, 512.25, 60, 99, 20480, 0x0000000000000004'
case $* in *loop*) read never <FOLDER/never ;; esac
"""


class Run(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        os.mkfifo(self.folder / "never")
        (self.folder / "calls").touch()
        self.log("denoise_step      1  2.00 s  2.00 s  2.00 s      5   400 ms",
                 "GPU kernels: attention: cuDNN 9.19.0; products: cuBLASLt 13")
        for name, text in (("build/reelmesh", REELMESH), ("build/tests/test_gpu", TESTS),
                           ("build/tests/test_gpu_truth", TESTS), ("build/tests/bench_gpu", BENCH),
                           ("bin/nvidia-smi", SMI), ("build/mpirun", "shift 2\nexec \"$@\""),
                           ("bin/python3", f"exec '{sys.executable}' \"$@\""),
                           ("bin/ncu", "echo \"ncu $*\" >>CALLS\necho ERR_NVGPUCTRPERM")):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\n" + text.replace("CALLS", str(self.folder / "calls"))
                            .replace("FOLDER", str(self.folder)))
            path.chmod(0o755)

    def log(self, *lines):
        (self.folder / "log").write_text("\n".join(lines) + "\n")

    def trace(self):
        """A trace with a step, if there is h5py; otherwise the logs have the times."""
        try:
            import h5py
            import numpy
            from tables import write_table
        except ImportError:
            return False
        with h5py.File(self.folder / "trace.h5", "w") as file:
            rows = [(0, b"denoise_step", 0, step, 0, 4 * 10**8, 0, 0) for step in range(5)]
            write_table(file, "spans", numpy.array(rows, dtype=[
                ("rank", "i4"), ("name", "S16"), ("clip", "i4"), ("step", "i4"), ("start_ns", "i8"),
                ("duration_ns", "i8"), ("flops", "i8"), ("memory_bytes", "i8")]))
            write_table(file, "ranks", numpy.array(
                [(1 << 30,)], dtype=[("peak_device_memory_bytes", "i8")]))
        return True

    def run_parts(self, groups, *words):
        """Status, text of summary.md, calls of the stand-ins."""
        (self.folder / "calls").write_text("")
        environment = dict(os.environ, PATH=f"{self.folder}/bin:{os.environ['PATH']}",
                           OUT=str(self.folder / "out"))
        done = subprocess.run(
            ["bash", ROOT / "tests/gpu/run", "--build", self.folder / "build", "--minutes", "9",
             "--logs", self.folder / "logs", "--keep", self.folder / "keep", "--only", groups,
             *words], text=True, capture_output=True, env=environment, timeout=250)
        self.assertEqual(done.stderr, "")
        return (done.returncode, (self.folder / "out/summary.md").read_text(),
                (self.folder / "calls").read_text())

    def test_order_archive_and_kept_models(self):
        has_trace = self.trace()
        groups = "versions,demo,heads,compare,ops,bench,decode,weights,profile"
        status, summary, calls = self.run_parts(groups)
        if importlib.util.find_spec("torch") is None:  # which would not find a GPU
            self.assertEqual(status, 0, summary)
        parts = re.findall(r"^- \*\*(\w+)\*\* passed", summary, re.M)
        wanted = ["versions", "demo", "demo_on_2_ranks", "bench_attention", "compare_14_layers",
                  "operations", "compare_42_layers", "bench_5b", "bench_products", "decode",
                  "compare_weights_host"]
        self.assertEqual([part for part in parts if part in wanted], wanted, summary)
        self.assertIn("- **profile** left out", summary)
        self.assertIn("SM 1755 MHz (1755 to 1755), 512 W (to 512), to 60 °C, power cap 100% of the "
                      "time, GPU memory to 20.00 GiB", summary)
        if has_trace:
            self.assertIn("| transformer step | 0.4 s (0.4 to 0.4) |", summary)
            self.assertIn("| denoise_step | 0.4 0.4 0.4 0.4 0.4 |", summary)
        # Nothing else is brought back.
        self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()),
                         ["logs.tar.gz", "summary.md"])
        with tarfile.open(self.folder / "out/logs.tar.gz") as archive:
            names = archive.getnames()
        for name in ["gpu.csv", "making_models.log", *(f"{part}.log" for part in wanted)]:
            self.assertIn(f"./{name}", names)
        # Models: few layers first, without waiting for a disk; and once only.
        made = [line.split() for line in calls.splitlines() if " make-model " in line]
        self.assertEqual([line[3].rpartition("/")[2] for line in made][:3],
                         ["5b-2", "5b-14", "5b-i2v"])
        self.assertTrue(all("--no-sync" in line for line in made))
        status, _, calls = self.run_parts("ops")
        self.assertEqual(status, 0)
        self.assertNotIn("make-model", calls)
        self.assertIn("--trace.level ops", calls)

    def test_settings_of_the_device_stay(self):
        _, _, calls = self.run_parts("profile")
        self.assertIn("ncu --csv --clock-control none ", calls)
        for line in calls.splitlines():
            if line.startswith("nvidia-smi"):
                self.assertRegex(line, "--query-")

    def test_own_attention_and_tests_that_are_not_there_fail(self):
        self.trace()
        self.log("reelmesh: warning: steps run without a CUDA graph, because of memory",
                 "GPU kernels: attention with bias: own kernels; attention: own kernels")
        status, summary, calls = self.run_parts("ops,truth,demo")
        self.assertEqual(status, 1)
        self.assertIn("- **operations** FAILED: attention was not cuDNN's (passed)", summary)
        self.assertIn("reelmesh: warning: steps run without a CUDA graph", summary)
        self.assertIn("- **demo** passed", summary)  # it has few keys
        self.assertIn("- **truth_attention** passed", summary)
        self.assertIn("- **truth_convolution** FAILED", summary)
        filters = re.findall(r"test_gpu_truth --gtest_filter=(\S+)", calls)
        self.assertEqual(filters[0], "*FusedAgreesWithFloat32AndOwn/bfloat16_48_heads")
        self.log("GPU kernels: attention with bias: own kernels; attention: cuDNN 9.19.0")
        self.assertEqual(self.run_parts("ops")[0], 0)

    def test_a_failed_model_is_said(self):
        (self.folder / "build/reelmesh").write_text(
            "#!/bin/sh\n[ $1 != make-model ] || { echo 'no room'; exit 73; }\n")
        status, summary, _ = self.run_parts("ops,decode")
        self.assertEqual(status, 1)
        self.assertRegex(summary,
                         r"\*\*operations\*\* FAILED: there is no model 5b-14: .*status 73")
        self.assertIn("**decode** FAILED", summary)

    def test_wrong_group(self):
        done = subprocess.run(["bash", ROOT / "tests/gpu/run", "--only", "demo,speed"], text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 64)
        self.assertIn("--only 'speed': expected build,versions,", done.stderr)


class Monitor(unittest.TestCase):
    def test_rows_between_two_times(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "gpu.csv")
            path.write_text(",".join(monitor.HEAD) + "\n"
                            "10.0,1980, 2619, 100.0, 40, 99, 1024, 0x0\n"
                            "11.0,1755, 2619, [N/A], 50, 99, 4096, 0x0000000000000004\n"
                            "12.0,1410, 2619, 700.0, 70, 80, 2048, 0x0000000000000044\n"
                            "13.0,345, 2619, 90.0, 45, 0, 1024, 0x0000000000000001\n"
                            "14.0,19")
            self.assertEqual(
                monitor.summary(path, 10.5, 20.0),
                "SM 1582 MHz (1410 to 1755), 700 W (to 700), to 70 °C, power cap 100% of the time, "
                "hardware thermal slowdown 50% of the time, GPU memory to 4.00 GiB")
            self.assertEqual(monitor.summary(path, 12.5, 13.5), "GPU memory to 1.00 GiB")
            self.assertEqual(monitor.summary(path, 20.0, 30.0), "")


class Times(unittest.TestCase):
    def test_a_layer_in_the_order_of_its_operations(self):
        def span(name, start, milliseconds, step=-1, flops=0, memory=0):
            return dict(name=name, clip=0, step=step, start=start * 10**6, flops=flops,
                        duration=milliseconds * 10**6, memory=memory)

        spans = [span("denoise_step", 0, 5, 0), span("denoise_step", 10, 25, 1)]
        for start in (11, 21):
            spans += [span("transformer_block", start, 10, 1),
                      span("product", start, 4, 1, flops=8 * 10**9), span("exchange", start + 4, 1),
                      span("norm", start + 5, 2 if start == 11 else 4, 1, memory=3 * 10**6)]
        spans += [span("decode", 50, 9), span("convolution", 51, 3, flops=6 * 10**9),
                  span("convolution", 55, 3, flops=6 * 10**9)]
        self.assertEqual(list(times_of.tables(spans)), [
            "| stage | calls, s |", "| --- | --- |", "| denoise_step | 0.005 0.025 |",
            "| decode | 0.009 |", "",
            "| of a layer, mean of 2 in the last step of clip 0 | ms | TFLOP/s | GB/s |",
            "| --- | ---: | ---: | ---: |", "| product | 4 | 2 |  |", "| norm | 3 |  | 1 |",
            "| all, between and beside them 2 | 10 | | |",
            "| step, outside its layers 5 | 25 | | |", "",
            "| in decode of clip 0 | calls | ms | TFLOP/s | GB/s |",
            "| --- | ---: | ---: | ---: | ---: |", "| convolution of 6 GFLOP | 2 | 6 | 2 |  |",
            "| others | | 0 | | |", "| beside operations | | 3 | | |"])


if __name__ == "__main__":
    unittest.main()

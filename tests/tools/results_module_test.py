#!/usr/bin/python3
"""The Python module reelmesh_results: what it reads against what h5py reads, its errors, and that
pip installs it.

Ends with status 77 (skipped) if Debian's packages for it are not installed. Without pandas the test
of spans is skipped, without pip that of its installation.
"""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import unittest
import unittest.mock

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"results_module_test: passed over: {missing}")
    sys.exit(77)

import results_support
from tables import table, write_table
from tool_support import TOOLS, ToolTest

import reelmesh_results

needs_pandas = unittest.skipUnless(importlib.util.find_spec("pandas"), "pandas is not installed")
needs_pip = unittest.skipUnless(importlib.util.find_spec("pip"), "pip is not installed")


class Jobs(ToolTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"
        results_support.write_job(self.out, clips=3, spans=600, ranks=2)

    def stored(self, name, file="clips/000001.h5"):
        with h5py.File(self.out / file) as file:
            return file[name][()]

    def test_a_job(self):
        for out in (self.out, str(self.out), self.out / "job.h5"):
            job = reelmesh_results.open(out)
            self.assertEqual((job.path, job.status, job.is_training),
                             (self.out, "complete", False))
        self.assertEqual(job.attributes["version"], "0.1.0")
        self.assertEqual(job.options["model.path"], "inputs/demo_model")
        self.assertEqual(len(job.requests), 3)
        self.assertEqual([row["rank"] for row in job.ranks()], [0, 1])
        self.assertEqual((list(job.clips), len(job.clips), 3 in job.clips), ([0, 1, 2], 3, False))
        with self.assertRaisesRegex(KeyError, "no clip 3; complete are 0-2"):
            job.clips[3]

    def test_a_clip(self):
        clip = reelmesh_results.open(self.out).clips[1]
        self.assertEqual((clip.number, clip.prompt, clip.negative_prompt, clip.seed, clip.fps),
                         (1, "a square moves to the right, 1", "", 43, 8.0))
        self.assertIs(type(clip.attributes["steps"]), int)
        self.assertEqual(clip.datasets, ("token_ids", "latents", "video"))
        for name in clip.datasets:
            for found in (getattr(clip, name), clip.array(name)):
                self.assertEqual(found.dtype, self.stored(name).dtype)
                np.testing.assert_array_equal(found, self.stored(name))
        np.testing.assert_array_equal(clip.frame(-2), self.stored("video")[-2])
        with self.assertRaisesRegex(IndexError, "frame 9 of 9"):
            clip.frame(9)
        with self.assertRaisesRegex(reelmesh_results.Error,
                                    "000001.h5: has no prompt_embeds, expected one of token_ids, latents, video"):
            _ = clip.prompt_embeds
        alone = self.folder / "alone.h5"
        shutil.copy(clip.path, alone)
        self.assertEqual((reelmesh_results.Clip(alone).number, reelmesh_results.Clip(alone).seed),
                         (None, 43))

    def test_arrays_larger_than_a_block(self):
        from reelmesh_results import job
        with unittest.mock.patch.object(job, "BLOCK", 1 << 15):  # less than three frames
            found = reelmesh_results.open(self.out).clips[1].video
        np.testing.assert_array_equal(found, self.stored("video"))

    def test_clips_that_are_not_there(self):
        results_support.write_index(self.out, [{}] * 3, {0: ("failed", "NaN after step 3")},
                                    status="failed")
        (self.out / "clips/000002.h5").unlink()
        job = reelmesh_results.open(self.out)
        self.assertEqual((list(job.clips), job.failed, job.status),
                         ([1], {0: "NaN after step 3"}, "failed"))

    @needs_pandas
    def test_spans(self):
        with h5py.File(self.out / "trace.h5") as file:
            rows = table(file, "spans")
        spans = reelmesh_results.open(self.out).spans()
        self.assertEqual(len(spans), len(rows))
        for name in ("lane", "name"):
            self.assertEqual(list(spans[name]), [text.decode() for text in rows[name].tolist()])
        for name in ("rank", "clip", "step", "layer", "start_ns", "duration_ns", "bytes", "flops"):
            np.testing.assert_array_equal(spans[name], rows[name])
        times = spans.groupby(["rank", "name"], observed=True).duration_ns.sum()
        of_rank = rows[rows["rank"] == 1]
        self.assertEqual(times[1, "denoise_step"],
                         of_rank["duration_ns"][of_rank["name"] == b"denoise_step"].sum())

    @needs_pandas
    def test_tables_of_earlier_versions(self):
        """Compound datasets, with texts of fixed length and enumerations of HDF5."""
        import pandas.testing
        job = reelmesh_results.open(self.out)
        spans, ranks = job.spans(), job.ranks()
        kinds = {"spans": results_support.SPAN, "ranks": results_support.RANK,
                 "memory": results_support.MEMORY, "counters": results_support.SAMPLE,
                 "messages": results_support.MESSAGE}
        with job.trace() as trace:
            memory = trace.memory.tolist()
        with h5py.File(self.out / "trace.h5", "r+") as file:
            for name, kind in kinds.items():
                rows = np.empty(len(file[name]["rank"]), kind)
                found = table(file, name)
                for column in kind.names:
                    rows[column] = found[column]
                del file[name]
                file[name] = rows
            file.attrs["format_version"] = 1
        pandas.testing.assert_frame_equal(job.spans(), spans)
        self.assertEqual(job.ranks(), ranks)
        with job.trace() as trace:
            self.assertEqual(trace.memory.tolist(), memory)
            self.assertEqual(trace.counter_names()[10], "BYTES_SENT")

    @needs_pandas
    def test_a_trace_without_spans(self):
        with h5py.File(self.out / "trace.h5", "r+") as file:
            write_table(file, "spans", table(file, "spans")[:0])
        spans = reelmesh_results.open(self.out).spans()
        self.assertEqual((len(spans), list(spans)[:3]), (0, ["rank", "lane", "name"]))

    def test_a_training(self):
        out = self.folder / "training"
        results_support.write_training(out, steps=40)
        job = reelmesh_results.open(out)
        self.assertEqual((job.is_training, len(job.clips)), (True, 0))
        with h5py.File(out / "metrics.h5") as file:
            np.testing.assert_array_equal(job.metrics()["loss"], file["loss"])

    def test_compare(self):
        other = self.folder / "other"
        shutil.copytree(self.out, other)
        a, b = (reelmesh_results.open(out) for out in (self.out, other))
        self.assertTrue(reelmesh_results.compare(a, b).same)
        with h5py.File(other / "clips/000001.h5", "r+") as file:
            file["video"][4, 0, 0, 0] ^= 1
        found = reelmesh_results.compare(str(self.out), b)
        self.assertEqual((found.result, found.same, found.worst.name), ("different", False, "clip 1"))
        self.assertEqual((found.worst.video.differing, found.worst.video.first), (1, (4, 0, 0, 0)))
        self.assertIn("first difference: clip 1, video, frame 4", str(found))
        self.assertEqual(found.figures["clips"][0]["datasets"]["video"]["differing"], 1)
        self.assertTrue(reelmesh_results.compare(a, b, clip=0).same)
        self.assertTrue(reelmesh_results.compare(a.clips[2], b.clips[2]).same)
        (other / "clips/000002.h5").unlink()
        self.assertEqual(reelmesh_results.compare(a, other).result, "not comparable")

    def test_errors(self):
        Error = reelmesh_results.Error
        for out, status, part in ((self.folder / "none", 66, "none: no such folder"),
                                  (self.folder, 66, "job.h5: no such file"),
                                  (self.out / "clips/000000.h5", 65, "is a file, expected the")):
            with self.assertRaisesRegex(Error, part) as caught:
                reelmesh_results.open(out)
            self.assertEqual(caught.exception.status, status)
        for name in ("clips/000001.h5", "trace.h5", "job.h5"):
            path = self.out / name
            job, clip = (reelmesh_results.open(self.out) for _ in range(2))
            clip = clip.clips[1]
            path.write_bytes(path.read_bytes()[:400])
            reading = {"clips/000001.h5": [lambda: clip.video, lambda: job.clips[1],
                                           lambda: clip.frame(0),
                                           lambda: reelmesh_results.compare(job, job)],
                       "trace.h5": [job.trace, job.ranks],
                       "job.h5": [lambda: reelmesh_results.open(self.out)]}[name]
            for call in reading:
                with self.assertRaisesRegex(Error, f"{re.escape(str(path))}: not a readable HDF5"):
                    call()
            results_support.write_job(self.out, clips=3, spans=600, ranks=2)
        with self.assertRaises(AttributeError):
            _ = reelmesh_results.nothing


class Installed(ToolTest):
    def python(self, *words, folder=None, isolated="-I"):
        return subprocess.run([sys.executable, "-B", isolated, *words], cwd=self.folder, text=True,
                              capture_output=True, timeout=120, env={
                                  "PATH": os.environ["PATH"], "HOME": str(self.folder),
                                  **({"PYTHONPATH": str(folder)} if folder else {})})

    def test_one_version(self):
        found = re.search(r"project\(reelmesh VERSION ([\d.]+)",
                          (TOOLS.parent / "CMakeLists.txt").read_text())
        self.assertEqual(reelmesh_results.__version__, found[1])

    def test_import_without_packages(self):
        """It says which one is missing at the first use, and can be imported by the tools."""
        done = self.python("-c", "import sys, reelmesh_results; sys.modules['h5py'] = None; "
                           "print(dir(reelmesh_results)); reelmesh_results.open", folder=TOOLS,
                           isolated="-s")
        self.assertIn("'compare'", done.stdout)
        self.assertRegex(done.stderr, "ModuleNotFoundError: .*h5py")

    @needs_pip
    def test_pip(self):
        """pip install, without a network, from a folder that is not written into."""
        before = sorted(path for path in TOOLS.rglob("*") if "__pycache__" not in path.parts)
        target = self.folder / "site"
        done = self.python("-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps",
                           "--no-index", "--no-compile", "--target", target, TOOLS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(before, sorted(path for path in TOOLS.rglob("*")
                                        if "__pycache__" not in path.parts))
        sources = {path.relative_to(TOOLS) for path in (TOOLS / "reelmesh_results").rglob("*")
                   if path.is_file() and "__pycache__" not in path.parts}
        installed = {path.relative_to(target) for path in (target / "reelmesh_results").rglob("*")
                     if path.is_file()}
        self.assertEqual(sources, installed)
        out = self.folder / "out"
        results_support.write_job(out, clips=2, spans=100, ranks=2)
        done = self.python("-c", "import reelmesh_results\n"
                           "from reelmesh_results.report import page\n"  # with its files
                           "import importlib.metadata as m\n"
                           f"job = reelmesh_results.open({str(out)!r})\n"
                           "print(reelmesh_results.__file__, m.version('reelmesh_results'), "
                           "job.clips[1].video.shape)", folder=target, isolated="-s")
        self.assertEqual(done.stdout.split(maxsplit=2), [
            str(target / "reelmesh_results/__init__.py"), reelmesh_results.__version__,
            "(9, 64, 64, 3)\n"], done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

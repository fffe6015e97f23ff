#!/usr/bin/python3
"""Damaged and missing files, targets that cannot be written, missing packages: each tool says once
what is wrong, naming the file, and ends with the status for it.

Ends with status 77 (skipped) if Debian's packages for the tools are not installed.
"""
import concurrent.futures
import os
import shutil
import subprocess
import sys
import unittest

try:
    import h5py  # noqa: F401
    import matplotlib  # noqa: F401
    from PIL import Image  # noqa: F401
except ImportError as missing:
    print(f"bad_files_test: passed over: {missing}")
    sys.exit(77)

import results_support
from damages import (a_folder, a_table_that_is_missing, a_table_without_a_column, empty, foreign,
                     foreign_hdf5, frames_that_are_missing, half_written, newer, other_bits,
                     truncated)
from tool_support import LONG, TOOLS, ToolTest

FILES = {"job": "job.h5", "clip": "clips/000001.h5", "trace": "trace.h5"}
DAMAGES = {
    "job": (truncated, empty, foreign, foreign_hdf5, newer, half_written, a_folder),
    "clip": (truncated, empty, foreign, foreign_hdf5, newer, half_written, a_folder, other_bits,
             frames_that_are_missing),
    "trace": (truncated, empty, foreign, foreign_hdf5, newer, half_written, a_folder,
              a_table_that_is_missing, a_table_without_a_column)}
NEWER = ("is of format version 3, this tool reads up to 2: use the tools of the reelmesh that "
         "wrote it")


class Tool:
    """reads: keys of FILES. arguments(good, out, to): of calls that read all; out may be damaged.
    target, needs_ffmpeg: of calls that write below the folder `to`, and that need ffmpeg."""

    def __init__(self, reads, arguments, target=None, needs_ffmpeg=None):
        self.reads, self.arguments = reads, arguments
        self.target, self.needs_ffmpeg = target or arguments, needs_ffmpeg


# A new tool gets a row here.
CALLS = {
    "reelmesh-compare": Tool({"job", "clip"}, lambda good, out, to: [good, out],
                             lambda good, out, to: [good, out, "--picture", to / "a.png"]),
    "reelmesh-export": Tool({"job", "clip"},
                            lambda good, out, to: [out, "--all", "--to", to, "--format", "npy"],
                            needs_ffmpeg=lambda good, out, to: [out, "--all", "--to", to]),
    "reelmesh-report": Tool({"job", "clip", "trace"},
                            lambda good, out, to: [out, "--to", to / "report.html"]),
    "reelmesh-trace": Tool({"trace"}, lambda good, out, to: [out, "-o", to / "trace.json"]),
    "reelmesh-view": Tool({"job", "clip"},
                          lambda good, out, to: [out, "--no-mp4", "--to", to],
                          needs_ffmpeg=lambda good, out, to: [out, "--to", to]),
}


class BadFiles(ToolTest):
    def setUp(self):
        super().setUp()
        self.tools = sorted(path.name for path in TOOLS.glob("reelmesh-*"))
        self.assertGreater(len(self.tools), 3)
        self.good, self.out, self.to = (self.folder / name for name in ("good", "out", "to"))
        results_support.write_job(self.good, clips=2, spans=200, ranks=2, frames=2, height=32,
                                  width=32)

    def restore(self):
        for folder in (self.out, self.to):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.good, self.out)

    def call_with(self, tool, arguments, **options):
        return self.call(*arguments(self.good, self.out, self.to), tool=tool, **options)

    def check_said(self, tool, done, status, *parts):
        """One line on stderr, with these texts, and this status."""
        self.assertEqual(done.returncode, status, done.stderr + done.stdout)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith(f"{tool}: error: "), done.stderr)
        for part in parts:
            self.assertIn(str(part), done.stderr)

    def test_every_tool_has_a_row(self):
        self.assertEqual(set(self.tools) - set(CALLS), set())

    def test_help_fits_100_columns(self):
        for name in self.tools:
            with self.subTest(tool=name):
                done = self.call("--help", tool=name, environment={"COLUMNS": "100"})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)

    def damaged(self, case):
        """The outcome of a call with a damaged file, and the file. case: (number, tool, key of
        FILES, what damages it)"""
        number, name, kind, damage = case
        folder = self.folder / str(number)
        shutil.copytree(self.good, folder / "out")
        damage(folder / "out" / FILES[kind])
        words = CALLS[name].arguments(self.good, folder / "out", folder / "to")
        return self.call(*words, tool=name), folder / "out" / FILES[kind]

    def damages_for(self, name, kind):
        """Those that a tool is tried with. All tools share what reads files, so in tools/test those
        that read this kind take turns; in tests/long each has all, and others have one."""
        readers = [tool for tool in self.tools if kind in CALLS[tool].reads]
        if name not in readers:
            return DAMAGES[kind][:1] if LONG else ()
        return DAMAGES[kind] if LONG else DAMAGES[kind][readers.index(name)::len(readers)]

    def test_damaged_files(self):
        cases = [(name, kind, damage) for name in self.tools for kind in DAMAGES
                 for damage in self.damages_for(name, kind)]
        cases = [(number, *case) for number, case in enumerate(cases)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            outcomes = list(pool.map(self.damaged, cases))
        for (_, name, kind, damage), (done, path) in zip(cases, outcomes):
            with self.subTest(tool=name, file=kind, damage=damage.__name__):
                if kind in CALLS[name].reads:
                    self.check_said(name, done, 65, path, NEWER if damage is newer else "")
                else:
                    self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_missing_folders(self):
        for name in self.tools:
            with self.subTest(tool=name):
                self.restore()
                shutil.rmtree(self.out)
                self.check_said(name, self.call_with(name, CALLS[name].arguments), 66,
                                f"{self.out}: no such")
                self.out.mkdir()
                self.check_said(name, self.call_with(name, CALLS[name].arguments), 66, self.out)

    def test_targets_that_cannot_be_written(self):
        for name in self.tools:
            with self.subTest(tool=name):
                self.restore()
                # So that there is something to draw for reelmesh-compare.
                results_support.write_clip(self.out, 1, results_support.moving_square(2, 32, 32, 9))
                self.to.write_text("a file where a folder is expected")
                self.check_said(name, self.call_with(name, CALLS[name].target), 73, self.to)
                self.to.unlink()

    def test_standard_output_that_is_full(self):
        for name in self.tools:
            with self.subTest(tool=name), open("/dev/full", "w") as full:
                self.restore()
                words = CALLS[name].arguments(self.good, self.out, self.to)
                done = subprocess.run([sys.executable, "-B", TOOLS / name, *map(str, words)],
                                      stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr),
                                 (74, f"{name}: error: standard output: No space left on device\n"))

    def test_missing_ffmpeg(self):
        for name in self.tools:
            if CALLS[name].needs_ffmpeg:
                with self.subTest(tool=name):
                    self.restore()
                    self.check_said(name, self.call_with(name, CALLS[name].needs_ffmpeg,
                                                         environment={"PATH": ""}),
                                    69, "ffmpeg is not installed; on Debian: apt install ffmpeg")
                    self.assertFalse(self.to.exists())

    def test_missing_packages(self):
        for name in self.tools:
            with self.subTest(tool=name):
                self.restore()
                words = CALLS[name].target(self.good, self.out, self.to)
                done = subprocess.run([sys.executable, "-BS", TOOLS / name, *map(str, words)],
                                      capture_output=True, text=True, timeout=60)
                if done.returncode == 0:
                    self.skipTest("packages are found without the site folder")
                self.check_said(name, done, 69, "apt install python3-numpy python3-h5py")


if __name__ == "__main__":
    unittest.main(verbosity=2)

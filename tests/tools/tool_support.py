"""Runs the tools reelmesh-* in a temporary folder."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
LONG = os.environ.get("REELMESH_LONG") == "1"  # all variants (tests/long)
sys.path.insert(0, str(TOOLS))  # the package `results`


class ToolTest(unittest.TestCase):
    """`tool`: its name, set by the derived class. `folder`: a temporary folder for each test."""
    tool = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{self.tool or 'reelmesh'}_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def call(self, *arguments, tool=None, environment=None, text=True):
        words = [sys.executable, "-B", TOOLS / (tool or self.tool), *arguments]
        return subprocess.run([str(word) for word in words], text=text, capture_output=True,
                              env={**os.environ, **(environment or {})}, timeout=120)

    def expect(self, status, *arguments, **options):
        """Standard output of a call that has this status and nothing on stderr."""
        done = self.call(*arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (status, ""), done.stdout)
        return done.stdout

    def refused(self, status, part, *arguments, **options):
        """A call must have this status, and one line on stderr that contains `part`."""
        done = self.call(*arguments, **options)
        self.assertEqual(done.returncode, status, done.stderr + done.stdout)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        name = options.get("tool") or self.tool
        self.assertTrue(done.stderr.startswith(f"{name}: error: "), done.stderr)
        self.assertIn(str(part), done.stderr)

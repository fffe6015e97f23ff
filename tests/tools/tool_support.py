"""Runs the tools reelmesh-* in a temporary folder."""
import contextlib
import functools
import multiprocessing
import multiprocessing.forkserver
import os
import pathlib
import pkgutil
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
LONG = os.environ.get("REELMESH_LONG") == "1"  # all variants (tests/long)
sys.path.insert(0, str(TOOLS))  # the package `reelmesh_results`

# Tools run in children of a process that has imported what they use: most take less time than that.
_children = multiprocessing.get_context("forkserver")


@functools.cache
def _start_server():
    import reelmesh_results
    _children.set_forkserver_preload(
        ["h5py", "numpy", "PIL.Image", "matplotlib.backends.backend_agg", "matplotlib.figure"]
        + [found.name for found in pkgutil.walk_packages(reelmesh_results.__path__,
                                                          "reelmesh_results.")])
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(TOOLS)}):
        multiprocessing.forkserver.ensure_running()


def _run(words, environment, streams):
    """In the child: a tool as the interpreter would run it."""
    for descriptor, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


class ToolTest(unittest.TestCase):
    """`tool`: its name, set by the derived class. `folder`: a temporary folder for each test."""
    tool = None

    def setUp(self):
        _start_server()  # here, as a test may call tools in several threads
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{self.tool or 'reelmesh'}_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def call(self, *arguments, tool=None, environment=None, text=True):
        words = [str(word) for word in (TOOLS / (tool or self.tool), *arguments)]
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.NamedTemporaryFile()) for _ in range(2)]
            child = _children.Process(target=_run, args=(
                words, {**os.environ, **(environment or {})}, [file.name for file in files]))
            child.start()
            child.join(120)
            if child.is_alive():
                child.kill()
                raise subprocess.TimeoutExpired(words, 120)
            said = [file.read() for file in files]
        if text:
            said = [each.decode() for each in said]
        return subprocess.CompletedProcess(words, child.exitcode, *said)

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

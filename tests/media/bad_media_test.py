#!/usr/bin/python3
"""Bad images and videos are refused, each with one error of the documented status that names the
file, and without taking more memory than good ones."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import PIL  # noqa: F401
except ImportError:
    sys.exit(77)
if shutil.which("ffmpeg") is None:
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "end_to_end"))
from bad_media import bad_media

PROGRAM = os.environ["REELMESH_MEDIA_BYTES"]
LIMIT = 64 * 1024  # KiB more than for good files


def answers(lines):
    """The program's answers to commands, and its peak memory in KiB."""
    done = subprocess.run([PROGRAM], input="\n".join([*lines, "memory"]), stdout=subprocess.PIPE,
                          text=True, check=True, timeout=100)
    *rest, last = done.stdout.splitlines()
    return rest, int(last)


class BadMedia(unittest.TestCase):
    def test_each_is_refused(self):
        with tempfile.TemporaryDirectory(prefix="reelmesh_bad_media_") as name:
            folder = pathlib.Path(name)
            files = bad_media(folder)
            self.assertGreaterEqual(len(files), 70)
            output = folder / "output"
            good, usual = answers([f"video {folder}/whole.mp4 {output}"])
            self.assertEqual(good, ["48 64 6 8"])
            found, peak = answers([f"{file.kind} {file.path} {output}" for file in files])
            self.assertEqual(len(found), len(files))
            for file, answer in zip(files, found):
                with self.subTest(file.name):
                    start = f"error {file.status} {file.kind}: {file.path}: "
                    self.assertEqual(answer[:len(start)], start, answer)
                    self.assertIn(file.message, answer[len(start):])
            self.assertLess(peak, usual + LIMIT)


if __name__ == "__main__":
    unittest.main()

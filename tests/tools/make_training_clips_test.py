#!/usr/bin/python3
"""Tests of tools/make_training_clips: reads back what it writes.

Ends with status 77 (skipped) if numpy or ffmpeg is not installed.
"""
import csv
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError as missing:
    print(f"make_training_clips_test: passed over: {missing}")
    sys.exit(77)
if not shutil.which("ffmpeg"):
    print("make_training_clips_test: passed over: ffmpeg is not installed")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from drawn_clips import captions, scenes, scoring  # noqa: E402


def tool(*words):
    return subprocess.run([sys.executable, "-B", ROOT / "tools/make_training_clips", *map(str, words)],
                          capture_output=True, text=True)


def decoded(path):
    """uint8 [frame, row, column, 3]"""
    raw = subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt",
                          "rgb24", "-"], check=True, stdout=subprocess.PIPE).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, scenes.SIZE, scenes.SIZE, 3)


def kinds(prompts):
    """(colour, shape) of the one shape in each prompt, which jumps."""
    found = set()
    for prompt in prompts:
        (colour, shape, motion), = captions.parse(prompt)[1]
        assert motion == "jump", prompt
        found.add((colour, shape))
    return found


class TrainingClips(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        done = tool(cls.folder / "clips", "--count", 20, "--prompts", 12)
        assert done.returncode == 0, done.stderr
        with open(cls.folder / "clips/metadata.csv", newline="") as file:
            cls.rows = list(csv.DictReader(file))
        cls.heldout = (cls.folder / "clips/heldout.txt").read_text().splitlines()

    def test_each_clip_has_a_row_and_shows_its_caption(self):
        files = {path.name for path in (self.folder / "clips").iterdir()}
        self.assertEqual(files, {row["file_name"] for row in self.rows} | {"metadata.csv", "heldout.txt"})
        self.assertEqual(len(self.rows), 20)
        for row in self.rows:
            video = decoded(self.folder / "clips" / row["file_name"])
            self.assertEqual(len(video), scenes.FRAMES)
            found = scoring.score(video, row["prompt"])
            self.assertTrue(found["clip"], found)

    def test_combinations_of_the_prompts_are_in_no_clip(self):
        self.assertEqual(len(self.heldout), 12)
        shown = kinds(row["prompt"] for row in self.rows)
        self.assertFalse(shown & kinds(self.heldout))
        self.assertGreater(len(shown), 8)

    def test_other_motions_do_not_count_as_jumps(self):
        videos = [decoded(self.folder / "clips" / row["file_name"]) for row in self.rows[:6]]
        for row, video in zip(self.rows, videos):
            for wrong in (np.repeat(video[:1], len(video), 0),  # still
                          np.concatenate([video[:5], np.repeat(video[4:5], 4, 0)]),  # only up
                          video.transpose(0, 2, 1, 3)):  # to the left, and back
                self.assertEqual(scoring.score(wrong, row["prompt"])["motion"], [False], row)

    def test_the_same_options_write_the_same_bytes(self):
        self.assertEqual(tool(self.folder / "again", "--count", 20, "--prompts", 12).returncode, 0)
        for path in (self.folder / "clips").iterdir():
            self.assertEqual(path.read_bytes(), (self.folder / "again" / path.name).read_bytes(), path.name)

    def test_wrong_options_are_refused(self):
        done = tool(self.folder / "none", "--count", 0)
        self.assertEqual((done.returncode, (self.folder / "none").exists()), (64, False))
        self.assertIn("--count: found '0', expected a whole number from 1 to 1000", done.stderr)

    def test_a_file_in_the_place_of_the_folder_is_refused(self):
        (self.folder / "file").write_text("")
        done = tool(self.folder / "file")
        self.assertEqual(done.returncode, 73)
        self.assertIn("cannot make the folder", done.stderr)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/python3
"""Tests of the score of demo clips: high for drawn clips, low if clips show something else."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import numpy as np  # noqa: E402
from drawn_clips import captions, drawing, scenes, scoring  # noqa: E402

CLIPS = 40


class Score(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        rng = np.random.default_rng(11)
        cls.scenes = scenes.sample(rng, CLIPS)
        cls.clips = drawing.draw(cls.scenes)
        cls.prompts = [captions.caption(rng, cls.scenes, i) for i in range(CLIPS)]

    def shares(self, clips, prompts):
        return scoring.summary([scoring.score(c, p) for c, p in zip(clips, prompts)])

    def test_drawn_clips_are_right(self):
        subprocess.run([sys.executable, "-B", ROOT / "tools/score_demo", "--calibrate", "60"],
                       check=True, stdout=subprocess.DEVNULL)

    def test_noise_of_a_few_levels_changes_little(self):
        noise = np.random.default_rng(1).normal(0, 6, self.clips.shape)
        noisy = np.clip(self.clips + noise, 0, 255).astype(np.uint8)
        found = self.shares(noisy, self.prompts)
        for name in ("colour", "shape", "motion"):
            self.assertGreaterEqual(found[name], 97, name)

    def test_reversed_frames_are_wrong_motion(self):
        found = self.shares(self.clips[:, ::-1], self.prompts)
        self.assertLess(found["motion"], 35)
        self.assertEqual(found["shape"], 100)

    def test_other_words_are_wrong(self):
        others = {"circle": "square", "square": "triangle", "triangle": "circle"}
        prompts = [" ".join(others.get(w.strip(".,;:"), w) for w in p.split())
                   for p in self.prompts]
        self.assertLess(self.shares(self.clips, prompts)["shape"], 1)

    def test_clips_of_other_prompts_are_wrong(self):
        found = self.shares(np.roll(self.clips, 1, axis=0), self.prompts)
        self.assertLess(found["colour"], 60)
        self.assertLess(found["whole_clip"], 10)

    def test_an_empty_clip_shows_nothing(self):
        found = self.shares(np.zeros_like(self.clips), self.prompts)
        self.assertEqual((found["colour"], found["shape"], found["motion"]), (0, 0, 0))


class ScoreFromPictures(unittest.TestCase):
    """Drawn clips in the place of those that a model makes from pictures."""

    @classmethod
    def setUpClass(cls):
        rng = np.random.default_rng(12)
        some = scenes.sample_pictured(rng, CLIPS)
        cls.clips = drawing.draw(some)
        cls.prompts = [captions.motion_caption(rng, some, i) for i in range(CLIPS)]
        cls.pictures = [f"{i:03}_{captions.picture_name(some, i)}.png" for i in range(CLIPS)]

    def shares(self, clips, prompts, pictures):
        return scoring.summary([scoring.score(*one) for one in zip(clips, prompts, pictures)])

    def test_drawn_clips_are_right(self):
        found = self.shares(self.clips, self.prompts, self.pictures)
        for name in ("colour", "shape", "motion", "place", "background", "whole_clip"):
            self.assertEqual(found[name], 100, name)

    def test_other_pictures_are_wrong(self):
        found = self.shares(self.clips, self.prompts, np.roll(self.pictures, 1))
        for name, most in (("colour", 35), ("shape", 35), ("place", 30), ("background", 45),
                           ("whole_clip", 1)):
            self.assertLess(found[name], most, name)

    def test_other_prompts_are_wrong_motion(self):
        found = self.shares(self.clips, np.roll(self.prompts, 1), self.pictures)
        self.assertLess(found["motion"], 30)
        for name in ("colour", "shape", "place", "background"):
            self.assertEqual(found[name], 100, name)

    def test_moved_shapes_are_not_in_their_place(self):
        found = self.shares(np.roll(self.clips, 4, axis=2), self.prompts, self.pictures)
        self.assertEqual(found["place"], 0)

    def test_other_names_of_files_are_refused(self):
        with self.assertRaisesRegex(ValueError, "cat.png: expected a name like"):
            scoring.score(self.clips[0], self.prompts[0], "cat.png")


class Prompts(unittest.TestCase):
    def test_captions_of_motion_are_read_back(self):
        rng = np.random.default_rng(8)
        some = scenes.sample_pictured(rng, 500)
        for i in range(len(some)):
            text = captions.motion_caption(rng, some, i)
            self.assertEqual(captions.parse_motion(text), scenes.MOTIONS[some.motion[i, 0]], text)

    def test_pictures_are_of_held_out_combinations(self):
        from PIL import Image
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-B", ROOT / "tools/score_demo", "--pictures", "30",
                            "--to", folder], check=True)
            lines = (pathlib.Path(folder) / "prompts.jsonl").read_text().splitlines()
            self.assertEqual(len(lines), 30)
            for line in map(json.loads, lines):
                back, colour, shape, (x, y) = captions.parse_picture(line["image"])
                self.assertTrue(scenes.held_out(
                    scenes.COLOURS.index(colour), scenes.SHAPES.index(shape),
                    scenes.MOTIONS.index(captions.parse_motion(line["prompt"]))), line)
                picture = Image.open(line["image"])
                self.assertEqual((picture.mode, picture.size), ("RGB", (256, 256)))
                self.assertEqual(picture.getpixel((4 * x, 4 * y)), scenes.PALETTE[colour])
                self.assertEqual(picture.getpixel((0, 0)), scenes.PALETTE[back])

    def test_captions_are_read_back(self):
        rng = np.random.default_rng(5)
        some = scenes.sample(rng, 500)
        for i in range(len(some)):
            back, things = captions.parse(captions.caption(rng, some, i))
            self.assertEqual(back, scenes.BACKGROUNDS[some.background[i]])
            drawn = [(scenes.COLOURS[some.colour[i, j]], scenes.SHAPES[some.shape[i, j]],
                      scenes.MOTIONS[some.motion[i, j]]) for j in range(some.count[i])]
            self.assertEqual(sorted(things), sorted(drawn))

    def test_held_out_combinations_are_never_drawn_for_training(self):
        rng = np.random.default_rng(6)
        for held in (False, True):
            some = scenes.sample(rng, 500, held=held)
            used = np.arange(scenes.SHAPES_MAX) < some.count[:, None]
            flags = scenes.held_out(some.colour, some.shape, some.motion)[used]
            self.assertTrue((flags == held).all())

    def test_held_out_file_holds_only_such_prompts(self):
        lines = [line for line in (ROOT / "inputs/demo_heldout.txt").read_text().splitlines()
                 if not line.startswith("#")]
        self.assertEqual(len(lines), 200)
        for line in lines:
            for colour, shape, motion in captions.parse(line)[1]:
                self.assertTrue(scenes.held_out(
                    scenes.COLOURS.index(colour), scenes.SHAPES.index(shape),
                    scenes.MOTIONS.index(motion)), line)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/python3
"""Tests of the score of demo clips: high for drawn clips, low if clips show something else."""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import numpy as np  # noqa: E402
from demo_model import captions, drawing, scenes, scoring  # noqa: E402

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


class Prompts(unittest.TestCase):
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

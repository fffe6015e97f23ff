"""Clips that begin with a video: equal to diffusers' CogVideoXVideoToVideoPipeline, from files and
from clips of earlier jobs; saved and continued. tests/pipeline/layouts compares the layouts."""

import os
import pathlib
import shutil
import signal

import numpy

from interrupted import Interrupted
from media import MEDIA, MediaReference, add_parity_tests, check_same_clips
from support import (BACKEND, ERROR, KINDS, LONG, WARNING, Reference, clip_file, execute, main,
                     read_clip, run, send, state_of)

SOURCE = pathlib.Path(os.environ["REELMESH_SOURCE"])
STOPPED = 75
STEPS = 40 if BACKEND else 100


class VideoToVideo(Interrupted):
    def test_saved_and_continued(self):
        """Steps are counted from the first that is made."""
        table = (("sincos", 2, {"parallel.mode": "phased"}, 3, {"parallel.mode": "split"}),
                 ("rotary", 3, {"parallel.mode": "split"}, 1, {}))
        for kind, ranks, layout, later, later_layout in table if LONG else table[1:]:
            with self.subTest(kind=kind):
                shutil.rmtree(self.output, ignore_errors=True)
                reference = MediaReference(kind)
                options = reference.options(
                    self.output, sample__steps=STEPS,
                    prompt__file=reference.prompt_file(self.folder, strength=0.6))
                expected = self.make(options | {"output.path": self.folder / kind})
                outcome = self.disturb(
                    ranks, lambda job, processes: send(signal.SIGTERM, processes[-1:]),
                    options | layout | {"restart.every": 1})
                self.assertEqual(outcome.status, STOPPED, outcome)
                clip, step = next(iter(self.saved().items()))
                outcome = run(options | later_layout | {"output.if-exists": "resume"}, later)
                self.assertEqual(outcome.status, 0, outcome)
                self.assertIn(f"clip {clip} goes on after step {step} of {STEPS * 6 // 10}",
                              outcome.errors)
                check_same_clips(self, self.output, expected, 2)

    def test_a_clip_of_an_earlier_job(self):
        """Named in the index or by its own file, it is what a lossless file of its frames is."""
        earlier = self.make(Reference("sincos").options(
            self.folder / "earlier", prompt__text=["one", "two"], sample__steps=2))
        execute([SOURCE / "tools/reelmesh-export", earlier, "--clip", 1, "--lossless", "--to",
                 self.folder, "--format", "mp4"])
        made = {}
        for name, video in (("index", f"{earlier}/job.h5:1"), ("clip", clip_file(earlier, 1)),
                            ("file", self.folder / "000001.mkv")):
            output = self.make(Reference("sincos").options(
                self.folder / name, prompt__text="three", prompt__video=video, sample__steps=4,
                sample__strength=0.5))
            made[name] = read_clip(output)
            self.assertEqual(made[name]["attributes"]["fps"], 8)
        for name in ("index", "clip"):
            for array in ("latents", "video"):
                numpy.testing.assert_array_equal(made[name][array], made["file"][array])

    def test_a_clip_that_the_job_would_overwrite(self):
        earlier = self.make(Reference("sincos").options(
            self.folder / "earlier", prompt__text="one", sample__steps=2))
        before = state_of(earlier)
        link = self.folder / "link.h5"
        link.symlink_to(clip_file(earlier))
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text(f'{{"prompt": "two"}}\n{{"prompt": "three", "video": "{link}"}}\n')
        for choice, where, more in (
                ("replace", "prompt.video", {"prompt.video": f"{earlier}/job.h5:0"}),
                ("resume", f"{prompts}:2: video", {"prompt.file": prompts})):
            options = Reference("sincos").options(earlier, sample__steps=4) | more
            if "prompt.video" in more:
                options["prompt.text"] = "two"
            outcome = run(options | {"output.if-exists": choice})
            self.assertEqual(outcome.status, 64, outcome)
            self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
            self.assertIn(where, outcome.lines(ERROR)[0])
            self.assertIn(str(earlier), outcome.lines(ERROR)[0])
            self.assertEqual(state_of(earlier), before)

    def test_frames_size_and_rate(self):
        """What is not given is the video's; what of the video is not used is said."""
        reference = MediaReference("rotary")
        options = {"model.path": reference.model, "sample.steps": 2, "sample.height": 96,
                   "sample.width": 48, "prompt.text": "one"}
        cases = (({}, "exact.mkv", 9, 8, 0),
                 ({"sample.frames": 1}, "exact.mkv", 1, 8, 0),
                 ({"sample.frames": 9, "sample.fps": 8}, "long.mkv", 9, 8, 1))
        for index, (more, video, frames, fps, warnings) in enumerate(cases):
            with self.subTest(video=video, options=more):
                output = self.folder / str(index)
                outcome = run(options | more | {"prompt.video": MEDIA / video,
                                                "output.path": output})
                self.assertEqual(outcome.status, 0, outcome)
                self.assertEqual(len(outcome.lines(WARNING)), warnings, outcome)
                said = [line for line in outcome.errors.splitlines() if video in line]
                self.assertGreaterEqual(len(said), 1, outcome)
                clip = read_clip(output)
                self.assertEqual(clip["video"].shape, (frames, 96, 48, 3))
                self.assertEqual(clip["attributes"]["fps"], fps)
                self.assertEqual(clip["attributes"]["strength"], 0.8)

    def test_strength_1_keeps_nothing_but_the_size(self):
        """All steps are made, and the first begins with noise alone, as the schedule ends with a
        signal-to-noise ratio of zero."""
        reference = MediaReference("sincos")
        clips = []
        for video in ("exact.mkv", "long.mkv"):
            output = self.make(reference.options(
                self.folder / pathlib.Path(video).stem, prompt__text="one",
                prompt__video=MEDIA / video, sample__strength=1))
            clips.append(read_clip(output))
        numpy.testing.assert_array_equal(clips[0]["latents"], clips[1]["latents"])


add_parity_tests(VideoToVideo, KINDS)

if __name__ == "__main__":
    main()

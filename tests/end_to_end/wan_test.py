"""Wan through the program: the results of diffusers' WanPipeline and WanImageToVideoPipeline; a job
goes on within a clip; bad options and models are refused. tests/pipeline/layouts tests layouts."""

import json
import os
import shutil
import signal

import numpy

from interrupted import Interrupted
from support import DATA, ERROR, main, read_clip, read_safetensors, relative, run

WAN = DATA.parent / "wan"
MODEL, IMAGES = WAN / "float32", WAN / "image"
FACTS = json.loads((MODEL / "pipeline.json").read_text())


def options(output, index=0, **more):
    clip = FACTS["clips"][index]
    own = {"model.path": MODEL, "output.path": output, "prompt.text": clip["prompt"],
           "prompt.negative": clip["negative_prompt"], "sample.seed": clip["seed"],
           "sample.steps": clip["steps"], "sample.guidance": clip["guidance"],
           "sample.height": FACTS["height"], "sample.width": FACTS["width"],
           "sample.frames": FACTS["num_frames"], "output.embeddings": "yes"}
    return own | {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}


class Wan(Interrupted):
    def test_equals_diffusers(self):
        tensors = read_safetensors(MODEL / "pipeline.safetensors")
        for index, _ in enumerate(FACTS["clips"]):
            clip = read_clip(self.make(options(self.folder / str(index), index)))
            expected = {name: tensors[f"clip{index}.{name}"]
                        for name in ("token_ids", "embeddings", "latents", "frames")}
            with self.subTest(clip=index):
                kept = len(expected["embeddings"])
                numpy.testing.assert_array_equal(clip["token_ids"][:kept],
                                                 expected["token_ids"][:kept])
                self.assertLess(relative(clip["prompt_embeds"][:kept], expected["embeddings"]),
                                1e-5)
                self.assertFalse(clip["prompt_embeds"][kept:].any())
                self.assertLess(relative(clip["latents"], expected["latents"]), 1e-5)
                video = clip["video"][FACTS["frames"]].astype(int)
                self.assertLessEqual(abs(video - expected["frames"].astype(int)).max(), 1)

    def test_goes_on_within_a_clip(self):
        """UniPC's history and, with a cache, the residual are saved; other ranks go on."""
        for name, more in (("all", {}), ("cache", {"sample.cache": "every:2"})):
            more = {"sample.steps": 60, "restart.every": 1} | more
            expected = read_clip(self.make(options(self.folder / name) | more))
            self.output = self.folder / f"killed_{name}"
            job = options(self.output) | more
            self.disturb(2, lambda _, ranks: os.kill(ranks[1], signal.SIGKILL), job)
            self.assertIn(0, self.saved())
            found = read_clip(self.make(job | {"output.if-exists": "resume"}, ranks=3))
            for array in ("latents", "video"):
                numpy.testing.assert_array_equal(found[array], expected[array])

    def test_makes_the_frames_that_diffusers_makes(self):
        for asked, made in ((3, 1), (16, 17)):
            outcome = run(options(self.folder / str(asked), sample__frames=asked, sample__steps=2))
            self.assertEqual(outcome.status, 0, outcome)
            self.assertEqual(read_clip(self.folder / str(asked))["video"].shape[0], made)
            self.assertIn(f"the model makes {made}", str(outcome))

    def test_refuses_what_the_model_has_not(self):
        for more, said in (({"sample.dynamic-guidance": "yes"}, "sample.dynamic-guidance"),
                           ({"sample.height": 56}, "sample.height"),
                           ({"sample.scheduler": "ddim"}, "sample.scheduler")):
            outcome = run(options(self.folder / "out") | more)
            with self.subTest(**more):
                self.assertEqual(outcome.status, 64, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn(said, outcome.lines(ERROR)[0])

    def test_refuses_models_of_wan_2_2(self):
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        index = json.loads((model / "model_index.json").read_text())
        for change in ({"boundary_ratio": 0.875}, {"expand_timesteps": True}):
            (model / "model_index.json").write_text(json.dumps(index | change))
            outcome = run(options(self.folder / "out") | {"model.path": model})
            self.assertEqual(outcome.status, 65, outcome)
            self.assertIn(next(iter(change)), outcome.lines(ERROR)[0])
            self.assertIn("Wan 2.2", outcome.lines(ERROR)[0])


class FromImages(Interrupted):
    """A model that takes a first image (image), and one that takes a first and a last one (ends)."""

    def options(self, output, kind, index=0, **more):
        facts = json.loads((WAN / kind / "clips.json").read_text())
        clip = facts["clips"][index]
        own = {f"model.{part}": MODEL / part.replace("-", "_")
               for part in ("vae", "text-encoder", "tokenizer", "scheduler")}
        own |= {f"model.{part}": IMAGES / part.replace("-", "_")
                for part in ("image-encoder", "image-processor")}
        own |= {f"prompt.{key.replace('_', '-')}": IMAGES / clip[key]
                for key in ("image", "last_image") if key in clip}
        return own | {"model.path": WAN / kind, "output.path": output,
                      "prompt.text": clip["prompt"], "prompt.negative": clip["negative_prompt"],
                      "sample.seed": clip["seed"], "sample.steps": clip["steps"],
                      "sample.guidance": clip["guidance"], "sample.height": facts["height"],
                      "sample.width": facts["width"], "sample.frames": clip["frames"]} | more

    def test_equals_diffusers(self):
        for kind, count in (("image", 2), ("ends", 1)):
            tensors = read_safetensors(WAN / kind / "reference.safetensors")
            for index in range(count):
                name = f"{kind}_{index}"
                clip = read_clip(self.make(self.options(self.folder / name, kind, index)))
                with self.subTest(name):
                    expected = tensors[f"clip{index}.latents"]
                    self.assertLess(relative(clip["latents"], expected), 1e-5)
                    video = clip["video"][[0, 1, 4, -1]].astype(int)
                    frames = tensors[f"clip{index}.frames"].astype(int)
                    self.assertLessEqual(abs(video - frames).max(), 1)
                    self.assertEqual("last_image_hash" in clip["attributes"], kind == "ends")

    def test_goes_on_within_a_clip_and_is_run_again(self):
        """Condition and rows of the image encoder are saved; other ranks go on."""
        for kind in ("image", "ends"):
            more = {"sample.steps": 60, "restart.every": 1}
            expected = read_clip(self.make(self.options(self.folder / kind, kind) | more))
            self.output = self.folder / f"killed_{kind}"
            job = self.options(self.output, kind) | more
            self.disturb(2, lambda _, ranks: os.kill(ranks[1], signal.SIGKILL), job)
            self.assertIn(0, self.saved())
            resumed = self.make(job | {"output.if-exists": "resume"}, ranks=3)
            again = self.make({"from": resumed / "job.h5",
                               "output.path": self.folder / f"again_{kind}"}, ranks=2)
            for folder in (resumed, again):
                found = read_clip(folder)
                for array in ("latents", "video"):
                    numpy.testing.assert_array_equal(found[array], expected[array])
        # Another clip goes on where the first one ends.
        image = f"{self.folder}/image/job.h5:0@last"
        found = read_clip(self.make(self.options(self.folder / "next", "image") | {
            "prompt.image": image, "sample.steps": 2}))
        self.assertEqual(found["attributes"]["image"], image)

    def test_refuses_what_the_model_has_not(self):
        last = {"prompt.last-image": IMAGES / "last.png"}
        without = lambda kind, key: {name: value for name, value in self.options(
            self.folder / "out", kind).items() if name != key}
        table = (
            (64, "prompt.image: clip 0 has none", without("image", "prompt.image")),
            (64, "prompt.last-image: clip 0 has", without("image", "") | last),
            (64, "prompt.last-image: clip 0 has none", without("ends", "prompt.last-image")),
            (64, "prompt.last-image: found", without("ends", "prompt.image")),
            (64, "sample.frames: clip 0 has 1", without("ends", "") | {"sample.frames": 1}),
            (64, "first.png', expected none",
             options(self.folder / "out") | {"prompt.image": IMAGES / "first.png"}),
            (66, "model.image-encoder: folder", without("ends", "model.image-encoder")),
            (66, "preprocessor_config.json", without("image", "") | {
                "model.image-processor": IMAGES / "image_encoder"}),
            (65, "CLIPVisionModel", without("image", "") | {
                "model.image-encoder": MODEL / "text_encoder"}),
            (66, "last.jpg", without("ends", "") | {"prompt.last-image": IMAGES / "last.jpg"}))
        for status, said, job in table:
            outcome = run(job)
            with self.subTest(said):
                self.assertEqual(outcome.status, status, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn(said, outcome.lines(ERROR)[0])


if __name__ == "__main__":
    main()

"""Wan through the program: the results of diffusers' WanPipeline and, for clips from an image,
WanImageToVideoPipeline; a job goes on within a clip; bad options and models are refused.
tests/pipeline/layouts tests layouts."""

import json
import os
import shutil
import signal

import numpy

from interrupted import Interrupted
from support import DATA, ERROR, main, read_clip, read_safetensors, relative, run

MODELS = DATA.parent / "wan"
TEXTS = MODELS / "float32"
# The second, as TI2V-5B, makes clips from texts and from images.
KINDS = {kind: json.loads((MODELS / kind / "pipeline.json").read_text())
         for kind in ("float32", "ti2v")}


def options(output, index=0, kind="float32", **more):
    facts = KINDS[kind]
    clip = facts["clips"][index]
    own = {"model.path": MODELS / kind, "model.text-encoder": TEXTS / "text_encoder",
           "model.tokenizer": TEXTS / "tokenizer", "output.path": output,
           "prompt.text": clip["prompt"],
           "prompt.negative": clip["negative_prompt"], "sample.seed": clip["seed"],
           "sample.steps": clip["steps"], "sample.guidance": clip["guidance"],
           "sample.height": facts["height"], "sample.width": facts["width"],
           "sample.frames": facts["num_frames"], "output.embeddings": "yes"}
    if "image" in clip:
        own["prompt.image"] = DATA / "media" / clip["image"]
    return own | {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}


class Wan(Interrupted):
    def test_equals_diffusers(self):
        for kind, facts in KINDS.items():
            tensors = read_safetensors(MODELS / kind / "pipeline.safetensors")
            for index, _ in enumerate(facts["clips"]):
                clip = read_clip(self.make(options(self.folder / f"{kind}{index}", index, kind)))
                expected = {name: tensors[f"clip{index}.{name}"]
                            for name in ("token_ids", "embeddings", "latents", "frames")}
                with self.subTest(kind=kind, clip=index):
                    kept = len(expected["embeddings"])
                    numpy.testing.assert_array_equal(clip["token_ids"][:kept],
                                                     expected["token_ids"][:kept])
                    embeddings = clip["prompt_embeds"]
                    self.assertLess(relative(embeddings[:kept], expected["embeddings"]), 1e-5)
                    self.assertFalse(embeddings[kept:].any())
                    self.assertLess(relative(clip["latents"], expected["latents"]), 1e-5)
                    video = clip["video"][facts["frames"]].astype(int)
                    self.assertLessEqual(abs(video - expected["frames"].astype(int)).max(), 1)

    def test_goes_on_within_a_clip(self):
        """UniPC's history, the latents of an image and, with a cache, the residual are saved; other
        ranks go on."""
        for name, kind, more in (("all", "float32", {}), ("image", "ti2v", {}),
                                 ("cache", "float32", {"sample.cache": "every:2"})):
            more = {"sample.steps": 60, "restart.every": 1} | more
            index = 1 if kind == "ti2v" else 0
            expected = read_clip(self.make(options(self.folder / name, index, kind) | more))
            self.output = self.folder / f"killed_{name}"
            job = options(self.output, index, kind) | more
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
        image = {"prompt.image": DATA / "media" / "small.png"}
        for kind, more, said in (
                ("float32", {"sample.dynamic-guidance": "yes"}, "sample.dynamic-guidance"),
                ("float32", {"sample.height": 56}, "sample.height"),
                ("float32", {"sample.scheduler": "ddim"}, "sample.scheduler"),
                ("float32", image, "takes no image"),
                ("ti2v", {"sample.height": 720},
                 "has 720, expected a multiple of 32 (16 pixels per latent, 2 latents per token), "
                 "for instance 704 or 736"),
                ("ti2v", {"sample.width": 48}, "for instance 32 or 64")):
            outcome = run(options(self.folder / "out", kind=kind) | more)
            with self.subTest(kind=kind, **more):
                self.assertEqual(outcome.status, 64, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn(said, outcome.lines(ERROR)[0])

    def test_refuses_models_of_two_transformers(self):
        model = self.folder / "model"
        shutil.copytree(TEXTS, model)
        index = json.loads((model / "model_index.json").read_text())
        (model / "model_index.json").write_text(json.dumps(index | {"boundary_ratio": 0.875}))
        outcome = run(options(self.folder / "out") | {"model.path": model})
        self.assertEqual(outcome.status, 65, outcome)
        self.assertIn("boundary_ratio", outcome.lines(ERROR)[0])
        self.assertIn("Wan 2.2", outcome.lines(ERROR)[0])


if __name__ == "__main__":
    main()

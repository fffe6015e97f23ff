"""Wan through the program: the results of diffusers' WanPipeline; a job goes on within a clip; bad
options and models are refused. tests/pipeline/layouts tests layouts."""

import json
import os
import shutil
import signal

import h5py
import numpy

from interrupted import Interrupted
from support import DATA, ERROR, main, read_clip, read_safetensors, relative, run

MODEL = DATA.parent / "wan" / "float32"
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

    def test_refuses_models_of_wan_2_2_that_it_does_not_know(self):
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        index = json.loads((model / "model_index.json").read_text())
        second = {"transformer_2": ["diffusers", "WanTransformer3DModel"]}
        for change, status in (({"boundary_ratio": 0.875}, 65),
                               ({"expand_timesteps": True}, 65), (second, 66)):
            (model / "model_index.json").write_text(json.dumps(index | change))
            outcome = run(options(self.folder / "out") | {"model.path": model})
            self.assertEqual(outcome.status, status, outcome)
            key = next(iter(change)).replace("transformer_2", "model.transformer-2")
            self.assertIn(key, outcome.lines(ERROR)[0])


EXPERTS = MODEL.parent / "experts"
OF_EXPERTS = json.loads((EXPERTS / "pipeline.json").read_text())


class TwoExperts(Interrupted):
    """Wan 2.2 A14B: transformer_2 takes over where timesteps are below the boundary."""

    def options(self, output, clips=OF_EXPERTS["clips"], **more):
        prompts = self.folder / f"{len(clips)}.jsonl"
        prompts.write_text("".join(json.dumps(clip) + "\n" for clip in clips))
        own = {"model.path": EXPERTS, "prompt.file": prompts, "output.path": output,
               "output.video": "no"} | {f"model.{option}": MODEL / folder for option, folder in (
                   ("transformer", "transformer"), ("vae", "vae"), ("text-encoder", "text_encoder"),
                   ("tokenizer", "tokenizer"), ("scheduler", "scheduler"))}
        own |= {f"sample.{name}": OF_EXPERTS["num_frames" if name == "frames" else name]
                for name in ("height", "width", "frames")}
        return own | {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}

    def latents(self, output, count):
        return [read_clip(output, index)["latents"] for index in range(count)]

    def limit(self, options, ranks):
        """Memory of a rank that is too small for both experts."""
        memory = [rank["memory"] for rank in self.planned(options, "--ranks", ranks)["by_rank"]]
        return max(one["denoise"] - one["parts"]["queue"] for one in memory) - 1

    def test_equals_diffusers(self):
        output = self.make(self.options(self.folder / "out"))
        expected = read_safetensors(EXPERTS / "pipeline.safetensors")
        for index, found in enumerate(self.latents(output, 3)):
            self.assertLess(relative(found, expected[f"clip{index}.latents"]), 1e-5, index)
        with h5py.File(output / "clips" / "000000.h5") as file:
            self.assertEqual((file.attrs["guidance"], file.attrs["guidance_2"]), (5, 2))
        with h5py.File(output / "clips" / "000001.h5") as file:
            self.assertEqual(file.attrs["guidance_2"], 3.5, "by default guidance")
        steps = OF_EXPERTS["steps_of_first"][0]
        self.assertIn(f"experts: {steps} steps by transformer, then {10 - steps} by transformer_2; "
                      "both in memory", self.planned(self.options(output), "--ranks", 1)["description"])

    def test_experts_that_do_not_fit_together_are_in_memory_in_turn(self):
        clips = [OF_EXPERTS["clips"][0]] * 2
        expected = self.latents(self.make(self.options(self.folder / "free", clips)), 2)
        for ranks in (1, 2):
            free = self.options(self.folder / f"tight_{ranks}", clips, parallel__replicas=1)
            tight = free | {"device.memory-limit": self.limit(free, ranks)}
            planned = self.planned(tight, "--ranks", ranks)
            self.assertTrue(planned["experts_in_turn"])
            self.assertIn("one at a time in memory", planned["description"])
            output = self.make(tight, ranks)
            for found, exact in zip(self.latents(output, 2), expected):
                numpy.testing.assert_array_equal(found, exact)
            with h5py.File(output / "trace.h5") as file:
                spans = file["spans"][()]
            loads = spans[(spans["name"] == b"load") & (spans["rank"] == 0)]
            # The text encoder; the stage of denoising, which loads nothing yet; each expert for
            # each clip.
            self.assertEqual(sorted(zip(loads["clip"], loads["step"]))[-4:],
                             [(0, -1), (0, 5), (1, -1), (1, 5)])

    def test_goes_on_on_either_side_of_the_switch(self):
        clip = OF_EXPERTS["clips"][0] | {"steps": 60}
        expected, = self.latents(self.make(self.options(self.folder / "all", [clip])), 1)
        first = self.planned(self.options(self.output, [clip]), "--ranks", 1)["experts"]["steps"][0]
        self.assertEqual(first, 24)  # 60 steps of the shift 5
        for least in (3, first + 3):
            self.output = self.folder / f"killed_{least}"
            job = self.options(self.output, [clip], restart__every=1)
            self.disturb(2, lambda _, ranks: os.kill(ranks[1], signal.SIGKILL), job,
                         lambda: any(step >= least for step in self.saved_quietly().values()))
            self.assertEqual(self.saved()[0] > first, least > first)
            found, = self.latents(self.make(job | {"output.if-exists": "resume"}, ranks=3), 1)
            numpy.testing.assert_array_equal(found, expected)

    def test_refuses_what_two_transformers_have_not(self):
        for more, said in (({"sample.cache": "every:2"}, "sample.cache: found every:2"),
                           ({"sample.cache": "teacache:0.1"}, "sample.cache: found teacache:0.1")):
            outcome = run(self.options(self.folder / "out") | more)
            self.assertEqual(outcome.status, 64, outcome)
            self.assertIn(said, outcome.lines(ERROR)[0])
        outcome = run(options(self.folder / "out") | {"sample.guidance-2": 3})
        self.assertEqual(outcome.status, 64, outcome)
        self.assertIn("sample.guidance-2: found 3 for clip 0, expected none: the model has no "
                      "second transformer", outcome.lines(ERROR)[0])
        outcome = run(options(self.folder / "out") | {"model.transformer-2": MODEL / "transformer"})
        self.assertEqual(outcome.status, 64, outcome)
        self.assertIn("model.transformer-2: found", outcome.lines(ERROR)[0])


if __name__ == "__main__":
    main()

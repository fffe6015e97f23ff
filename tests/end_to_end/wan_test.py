"""Wan through the program: the results of diffusers' WanPipeline, also in a few steps and with a
LoRA, of its WanImageToVideoPipeline and WanVideoToVideoPipeline; weights of float8 with Wan's own names; a job goes on
within a clip; bad options and models are refused. tests/pipeline/layouts tests layouts."""

import json
import os
import shutil
import signal

import h5py
import numpy

from interrupted import Interrupted
from support import (BACKEND, DATA, ERROR, LONG, main, read_clip, read_safetensors, relative, run, write_header)
from tables import table

MODELS = DATA.parent / "wan"
TEXTS, IMAGES = MODELS / "float32", MODELS / "image"
# The second, as TI2V-5B, makes clips from texts and from images.
KINDS = {kind: json.loads((MODELS / kind / "pipeline.json").read_text())
         for kind in ("float32", "ti2v")}
VIDEOS = json.loads((TEXTS / "from_video.json").read_text())
FEW = json.loads((TEXTS / "few_steps.json").read_text())
# Wan's own names of the layers of a block that have matrices, and others.
OWN_NAMES = {"attn1.to_q": "self_attn.q", "attn1.to_k": "self_attn.k", "attn1.to_v": "self_attn.v",
             "attn1.to_out.0": "self_attn.o", "attn2.to_q": "cross_attn.q", "attn1.": "self_attn.",
             "attn2.to_k": "cross_attn.k", "attn2.to_v": "cross_attn.v",
             "attn2.to_out.0": "cross_attn.o", "attn2.": "cross_attn.", "ffn.net.0.proj": "ffn.0",
             "ffn.net.2": "ffn.2", "norm2": "norm3"}


def few(clips):
    """The first on emulated GPUs, which take long; in tests/long all."""
    return clips[:1] if BACKEND and not LONG else clips


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
            for index in few(range(len(facts["clips"]))):
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

    def few_steps(self, clip, **more):
        own = {"model.path": TEXTS, "prompt.text": clip["prompt"], "sample.seed": clip["seed"],
               "sample.guidance": 1, "sample.flow-shift": clip["shift"],
               "sample.scheduler": "euler", "sample.height": FEW["height"],
               "sample.width": FEW["width"], "sample.frames": FEW["num_frames"]}
        if "levels" in clip:
            own["sample.noise-levels"] = ",".join(map(str, clip["levels"]))
        else:
            own["sample.steps"] = clip["steps"]
        if "lora" in clip:
            own["model.lora"] = f"{TEXTS.parent / 'lora' / clip['lora']}:{clip['strength']}"
        return own | more

    def test_makes_clips_in_few_steps(self):
        """As distilled models are used: no guidance, Euler, noise levels and a LoRA."""
        tensors = read_safetensors(TEXTS / "few_steps.safetensors")
        for index, clip in enumerate(FEW["clips"]):
            job = self.few_steps(clip) | {"output.path": self.folder / str(index)}
            found = read_clip(self.make(job))
            with self.subTest(clip=index):
                self.assertLess(relative(found["latents"], tensors[f"clip{index}.latents"]), 1e-5)
                self.assertEqual(found["attributes"]["steps"], clip["steps"])
                self.assertEqual("noise_levels" in found["attributes"], "levels" in clip)

    def test_plans_one_branch_without_guidance(self):
        job = self.few_steps(FEW["clips"][1]) | {"output.path": self.folder / "out"}
        one, two = (self.planned(job | {"sample.guidance": guidance}, "--ranks", 2)
                    for guidance in (1, 5))
        self.assertEqual(one["clip"]["steps"], 4)
        self.assertEqual([plan["layout"]["mesh"]["cfg"] for plan in (one, two)], [1, 2])

    def test_reads_float8_with_wans_own_names(self):
        """A file as ComfyUI's: matrices of float8 with scales, and the same values in float32."""
        values = [float("nan") if bits & 127 == 127 else (-1) ** (bits >> 7) * (
            (8 + bits % 8) * 2.0 ** ((bits >> 3 & 15) - 10) if bits >> 3 & 15 else bits % 8 / 512)
            for bits in range(256)]
        table = numpy.array(values, numpy.float32)
        generator = numpy.random.default_rng(1)
        header, wide = {}, {}
        blobs, wide_blobs = bytearray(), bytearray()

        def add(entries, blob, name, dtype, array):
            entries[name] = {"dtype": dtype, "shape": array.shape,
                             "data_offsets": [len(blob), len(blob) + array.nbytes]}
            blob += array.tobytes()

        for name, array in read_safetensors(
                TEXTS / "transformer/diffusion_pytorch_model.safetensors").items():
            own = name.replace("scale_shift_table", "modulation" if "blocks" in name
                               else "head.modulation").replace("proj_out", "head.head")
            own = own.replace("condition_embedder.time_proj", "time_projection.1")
            for kind in ("text", "time"):
                own = own.replace(f"condition_embedder.{kind}_embedder.linear_1", f"{kind}_embedding.0")
                own = own.replace(f"condition_embedder.{kind}_embedder.linear_2", f"{kind}_embedding.2")
            for current, original in OWN_NAMES.items() if "blocks" in name else ():
                own = own.replace(f".{current}", f".{original}")
            if array.ndim == 2 and "blocks" in name:
                codes = generator.integers(0, 0x5F, array.shape, numpy.uint8)  # to 30
                codes |= generator.integers(0, 2, array.shape, numpy.uint8) << 7
                scale = numpy.float32(0.011)
                add(header, blobs, own, "F8_E4M3", codes)
                add(header, blobs, own.replace(".weight", ".scale_weight"), "F32",
                    numpy.array(scale))
                array = table[codes] * scale
            else:
                add(header, blobs, own, "F32", array)
            add(wide, wide_blobs, name, "F32", array)
        add(header, blobs, "scaled_fp8", "F8_E4M3", numpy.zeros(0, numpy.uint8))
        clips = []
        for folder, entries, blob in (("float8", header, blobs), ("wide", wide, wide_blobs)):
            path = self.folder / folder
            path.mkdir()
            shutil.copy(TEXTS / "transformer/config.json", path)
            write_header(path / "diffusion_pytorch_model.safetensors", entries, bytes(blob))
            job = self.few_steps(FEW["clips"][0], **{"model.transformer": path})
            clips.append(read_clip(self.make(job | {"output.path": self.folder / f"of_{folder}"})))
        numpy.testing.assert_array_equal(clips[0]["latents"], clips[1]["latents"])
        self.assertTrue(numpy.isfinite(clips[0]["latents"]).all())

        # Ranks that share them keep those that no LoRA changes as they are: a byte each, of four.
        numbers = sum(numpy.prod(entry["shape"]) for entry in header.values()
                      if entry["dtype"] == "F8_E4M3")
        job = self.few_steps(FEW["clips"][1])
        expected = None
        for ranks, folder, weights in ((1, "wide", "replicated"), (1, "float8", "sharded"),
                                       (3, "float8", "sharded"), (2, "float8", "host")):
            with self.subTest(ranks=ranks, weights=weights):
                more = {"model.transformer": self.folder / folder, "parallel.weights": weights,
                        "output.path": self.folder / f"{weights}_{ranks}"}
                found = read_clip(self.make(job | more, ranks=ranks))["latents"]
                expected = found if expected is None else expected
                numpy.testing.assert_array_equal(found, expected)
        bytes_of = {}
        for folder, weights in (("float8", "sharded"), ("wide", "sharded"), ("float8", "host")):
            more = {"model.transformer": self.folder / folder, "parallel.weights": weights}
            planned = self.planned(job | more | {"output.path": self.folder / "plan"}, "--ranks", 2)
            bytes_of[folder, weights] = planned["weights"]
        kept = bytes_of["float8", "sharded"]
        self.assertLessEqual(numbers, kept["all"])
        self.assertLess(kept["all"], bytes_of["wide", "sharded"]["all"] - 2.9 * numbers)
        self.assertLess(kept["step_fetched"], 0.6 * kept["all"])
        self.assertGreater(bytes_of["float8", "host"]["all"], 4 * numbers)  # packed, if they stay

    def test_goes_on_within_a_clip(self):
        """UniPC's history, the latents of an image and, with a cache, the residual are saved; other
        ranks go on."""
        for name, kind, more in (("all", "float32", {}), ("image", "ti2v", {}),
                                 ("cache", "float32", {"sample.cache": "every:2"})):
            more = {"sample.steps": 30, "restart.every": 1} | more
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
                ("float32", {"sample.noise-levels": "1,0.5", "sample.steps": 2},
                 "sample.noise-levels: found 1,0.5 for the sampler unipc"),
                ("float32", {"sample.noise-levels": "1,0.5", "sample.scheduler": "euler"},
                 "found 2 levels for 5 steps"),
                ("float32", {"model.lora-2": MODELS / "lora/causvid.safetensors"},
                 "has one transformer, which model.lora changes"),
                ("float32", image, "small.png', expected none"),
                ("ti2v", {"sample.height": 720},
                 "has 720, expected a multiple of 32 (16 pixels per latent, 2 latents per token), "
                 "for instance 704 or 736"),
                ("ti2v", {"sample.width": 48}, "for instance 32 or 64")):
            outcome = run(options(self.folder / "out", kind=kind) | more)
            with self.subTest(kind=kind, **more):
                self.assertEqual(outcome.status, 64, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn(said, outcome.lines(ERROR)[0])

    def test_refuses_half_a_model_of_two_transformers(self):
        model = self.folder / "model"
        shutil.copytree(TEXTS, model)
        index = json.loads((model / "model_index.json").read_text())
        second = {"transformer_2": ["diffusers", "WanTransformer3DModel"]}
        for change, status in (({"boundary_ratio": 0.875}, 65), (second, 66)):
            (model / "model_index.json").write_text(json.dumps(index | change))
            outcome = run(options(self.folder / "out") | {"model.path": model})
            self.assertEqual(outcome.status, status, outcome)
            key = next(iter(change)).replace("transformer_2", "model.transformer-2")
            self.assertIn(key, outcome.lines(ERROR)[0])


class FromImages(Interrupted):
    """A model that takes a first image (image), and one that takes a first and a last one (ends)."""

    def options(self, output, kind, index=0, **more):
        facts = json.loads((MODELS / kind / "clips.json").read_text())
        clip = facts["clips"][index]
        own = {f"model.{part}": TEXTS / part.replace("-", "_")
               for part in ("vae", "text-encoder", "tokenizer", "scheduler")}
        own |= {f"model.{part}": IMAGES / part.replace("-", "_")
                for part in ("image-encoder", "image-processor")}
        own |= {f"prompt.{key.replace('_', '-')}": IMAGES / clip[key]
                for key in ("image", "last_image") if key in clip}
        return own | {"model.path": MODELS / kind, "output.path": output,
                      "prompt.text": clip["prompt"], "prompt.negative": clip["negative_prompt"],
                      "sample.seed": clip["seed"], "sample.steps": clip["steps"],
                      "sample.guidance": clip["guidance"], "sample.height": facts["height"],
                      "sample.width": facts["width"], "sample.frames": clip["frames"]} | more

    def test_equals_diffusers(self):
        for kind, count in (("image", 2), ("ends", 1)):
            tensors = read_safetensors(MODELS / kind / "reference.safetensors")
            for index in few(range(count)):
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
            more = {"sample.steps": 30, "restart.every": 1}
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
                "model.image-encoder": TEXTS / "text_encoder"}),
            (66, "last.jpg", without("ends", "") | {"prompt.last-image": IMAGES / "last.jpg"}))
        for status, said, job in table:
            outcome = run(job)
            with self.subTest(said):
                self.assertEqual(outcome.status, status, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn(said, outcome.lines(ERROR)[0])


class FromVideos(Interrupted):
    def options(self, output, index=0, **more):
        clip = VIDEOS["clips"][index]
        own = {"model.path": TEXTS, "output.path": output, "prompt.text": clip["prompt"],
               "prompt.negative": clip["negative_prompt"], "sample.seed": clip["seed"],
               "prompt.video": DATA / "media" / clip["video"], "sample.steps": clip["steps"],
               "sample.guidance": clip["guidance"], "sample.strength": clip["strength"],
               "sample.height": VIDEOS["height"], "sample.width": VIDEOS["width"],
               "sample.frames": clip["frames"]}
        if "scheduler" in clip:
            own["sample.scheduler"] = clip["scheduler"]
        return own | {key.replace("__", ".").replace("_", "-"): value
                      for key, value in more.items()}

    def test_equals_diffusers(self):
        tensors = read_safetensors(TEXTS / "from_video.safetensors")
        for index, clip in enumerate(VIDEOS["clips"]):
            found = read_clip(self.make(self.options(self.folder / str(index), index), ranks=2))
            with self.subTest(index):
                self.assertLess(relative(found["latents"], tensors[f"clip{index}.latents"]), 1e-5)
                made = found["video"][VIDEOS["frames"]].astype(int)
                frames = tensors[f"clip{index}.frames"].astype(int)
                self.assertLessEqual(abs(made - frames).max(), 1)
                self.assertEqual(found["attributes"]["strength"], clip["strength"])
                self.assertEqual(found["attributes"]["input_frames"],
                                 (clip["frames"] - 1) // 4 * 4 + 1)

    def test_goes_on_within_a_clip(self):
        """Steps and the history of UniPC begin at the first step that is computed."""
        more = {"sample__steps": 40, "restart__every": 1}
        expected = read_clip(self.make(self.options(self.folder / "expected", **more)))
        self.disturb(2, lambda _, ranks: os.kill(ranks[1], signal.SIGKILL),
                     self.options(self.output, **more))
        saved = self.saved()[0]
        outcome = run(self.options(self.output, **more) | {"output.if-exists": "resume"}, 3)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn(f"clip 0 goes on after step {saved} of 32", outcome.errors)
        found = read_clip(self.output)
        for array in ("latents", "video"):
            numpy.testing.assert_array_equal(found[array], expected[array])

    def test_refuses_what_the_model_has_not(self):
        video = {"prompt.video": DATA / "media" / "exact.mkv", "sample.frames": 9}
        parts = {f"model.{part}": TEXTS / part.replace("-", "_")
                 for part in ("transformer", "vae", "scheduler")}
        for job, said in (
                (options(self.folder / "out", kind="ti2v") | video, "takes no video, only prompt.image"),
                (options(self.folder / "out") | parts | {"model.path": EXPERTS} | video,
                 "takes no video"),
                (self.options(self.folder / "out", sample__strength=0.1),
                 "sample.strength: found 0.1 for clip 0, which leaves none of 5 steps, expected at "
                 "least 0.200")):
            outcome = run(job)
            with self.subTest(said):
                self.assertEqual(outcome.status, 64, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn(said, outcome.lines(ERROR)[0])


EXPERTS = MODELS / "experts"
OF_EXPERTS = json.loads((EXPERTS / "pipeline.json").read_text())


class TwoExperts(Interrupted):
    """Wan 2.2 A14B: transformer_2 takes over where timesteps are below the boundary."""

    def options(self, output, clips=OF_EXPERTS["clips"], **more):
        prompts = self.folder / f"{len(clips)}.jsonl"
        prompts.write_text("".join(json.dumps(clip) + "\n" for clip in clips))
        own = {"model.path": EXPERTS, "prompt.file": prompts, "output.path": output,
               "output.video": "no"} | {f"model.{option}": TEXTS / folder for option, folder in (
                   ("transformer", "transformer"), ("vae", "vae"), ("text-encoder", "text_encoder"),
                   ("tokenizer", "tokenizer"), ("scheduler", "scheduler"))}
        own |= {f"sample.{name}": OF_EXPERTS["num_frames" if name == "frames" else name]
                for name in ("height", "width", "frames")}
        return own | {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}

    def latents(self, output, count):
        return [read_clip(output, index)["latents"] for index in range(count)]

    def limit(self, options, ranks):
        """Memory of a rank that is too small for both experts; None if encoding prompts needs more,
        as on some processors for small clips."""
        memory = [rank["memory"] for rank in self.planned(options, "--ranks", ranks)["by_rank"]]
        limit = max(one["denoise"] - one["parts"]["queue"] for one in memory) - 1
        return limit if limit > max(one["text"] for one in memory) else None

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

    def test_equals_diffusers_from_images(self):
        """Without an image encoder, as Wan 2.2 has none."""
        model = MODELS / "experts_image"
        clips = [clip | {key: str(IMAGES / clip[key]) for key in ("image", "last_image")
                         if key in clip}
                 for clip in json.loads((model / "pipeline.json").read_text())["clips"]]
        job = self.options(self.folder / "out", clips)
        del job["model.transformer"]
        output = self.make(job | {"model.path": model}, ranks=2)
        expected = read_safetensors(model / "pipeline.safetensors")
        for index, found in enumerate(self.latents(output, 2)):
            self.assertLess(relative(found, expected[f"clip{index}.latents"]), 1e-5, index)

    def test_experts_that_do_not_fit_together_are_in_memory_in_turn(self):
        clips = [OF_EXPERTS["clips"][0]] * 2
        for times in range(1, 9):
            size = {f"sample.{side}": times * OF_EXPERTS[side] for side in ("height", "width")}
            job = self.options(self.folder / "free", clips, parallel__replicas=1) | size
            limits = [self.limit(job, ranks) for ranks in (1, 2)]
            if None not in limits:
                break
        expected = self.latents(self.make(job), 2)
        for ranks, limit in zip((1, 2), limits):
            self.assertIsNotNone(limit, "no clip is large enough")
            tight = job | {"output.path": self.folder / f"tight_{ranks}",
                           "device.memory-limit": limit}
            planned = self.planned(tight, "--ranks", ranks)
            self.assertTrue(planned["experts_in_turn"])
            self.assertIn("one at a time in memory", planned["description"])
            output = self.make(tight, ranks)
            for found, exact in zip(self.latents(output, 2), expected):
                numpy.testing.assert_array_equal(found, exact)
            with h5py.File(output / "trace.h5") as file:
                spans = table(file, "spans")
            loads = spans[(spans["name"] == b"load") & (spans["rank"] == 0)]
            # The text encoder; the stage of denoising, which loads nothing yet; each expert for
            # each clip.
            self.assertEqual(sorted(zip(loads["clip"], loads["step"]))[-4:],
                             [(0, -1), (0, 5), (1, -1), (1, 5)])

    def test_goes_on_on_either_side_of_the_switch(self):
        clip = OF_EXPERTS["clips"][0] | {"steps": 60}
        expected, = self.latents(self.make(self.options(self.folder / "all", [clip])), 1)
        first = self.planned(self.options(self.output, [clip]), "--ranks", 1)["experts"]["steps"][0]
        self.assertEqual(first, 25, "as UniPC of diffusers: 60 steps of the shift 5")
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
        outcome = run(options(self.folder / "out") | {"model.transformer-2": TEXTS / "transformer"})
        self.assertEqual(outcome.status, 64, outcome)
        self.assertIn("model.transformer-2: found", outcome.lines(ERROR)[0])


if __name__ == "__main__":
    main()

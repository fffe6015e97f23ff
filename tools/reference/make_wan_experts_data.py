#!/usr/bin/env python3
"""Makes tests/data/wan/experts and experts_image: models of two transformers, and clips by diffusers' pipelines.

`experts` has the second transformer of a model whose other parts are those of tests/data/wan/float32; `experts_image`
both transformers of a model that takes an image, that of tests/data/wan/image, without an image encoder. The boundary
is a timestep of the first clip, which the first transformer takes. pipeline.safetensors has the final latents of each
clip, pipeline.json its settings. Everything is float32 on the CPU.

To run it again, with the packages of make_wan_image_data.py:
    python tools/reference/make_wan_experts_data.py
"""
import shutil
import sys
from pathlib import Path

import diffusers
import PIL
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file

from cogvideox_kinds import PROMPTS
from make_wan_data import KINDS, fill, frames_first, write_json

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "wan"
SHARED = FOLDER / "float32"
HEIGHT, WIDTH, FRAMES = 48, 80, 9
BOUNDARY = 0.882
TEXT = KINDS["float32"]["transformer"]
IMAGE = TEXT | dict(in_channels=2 * TEXT["out_channels"] + 4, num_layers=1)
MODELS = {
    "experts": dict(
        pipeline=diffusers.WanPipeline, transformer=TEXT, seeds={"transformer_2": 7}, more={}, clips=[
            dict(prompt=PROMPTS[1], negative_prompt=PROMPTS[3], seed=42, steps=10, guidance=5.0, guidance_2=2.0),
            dict(prompt=PROMPTS[2], negative_prompt="", seed=7, steps=5, guidance=3.5),
            dict(prompt=PROMPTS[4], negative_prompt="", seed=9, steps=6, guidance=1.0, guidance_2=4.0)]),
    "experts_image": dict(
        pipeline=diffusers.WanImageToVideoPipeline, transformer=IMAGE, seeds={"transformer": 8, "transformer_2": 9},
        more=dict(image_encoder=None, image_processor=None), clips=[
            dict(prompt=PROMPTS[1], negative_prompt=PROMPTS[3], seed=42, steps=5, guidance=5.0, guidance_2=2.0,
                 image="first.png"),
            dict(prompt=PROMPTS[4], negative_prompt="", seed=9, steps=4, guidance=3.5, image="first.png",
                 last_image="last.png")]),
}


def open_pipeline(folder, model):
    parts = {name: SHARED / name for name in ("transformer", "transformer_2")}
    for name, seed in model["seeds"].items():
        parts[name] = folder / name
        made = diffusers.WanTransformer3DModel(**model["transformer"])
        fill(made, torch.Generator().manual_seed(seed)).save_pretrained(parts[name])

    def opened(maker, path):
        return maker.from_pretrained(path).eval()
    pipeline = model["pipeline"](
        tokenizer=transformers.T5Tokenizer.from_pretrained(SHARED / "tokenizer"),
        text_encoder=opened(transformers.UMT5EncoderModel, SHARED / "text_encoder"),
        transformer=opened(diffusers.WanTransformer3DModel, parts["transformer"]),
        transformer_2=opened(diffusers.WanTransformer3DModel, parts["transformer_2"]),
        vae=opened(diffusers.AutoencoderKLWan, SHARED / "vae"),
        scheduler=diffusers.UniPCMultistepScheduler.from_pretrained(SHARED / "scheduler"), boundary_ratio=BOUNDARY,
        **model["more"])
    pipeline.save_config(folder)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def made(pipeline, clip):
    images = {key: Image.open(FOLDER / "image" / clip[key]).convert("RGB")
              for key in ("image", "last_image") if key in clip}
    return pipeline(
        prompt=clip["prompt"], negative_prompt=clip["negative_prompt"], height=HEIGHT, width=WIDTH, num_frames=FRAMES,
        num_inference_steps=clip["steps"], guidance_scale=clip["guidance"], guidance_scale_2=clip.get("guidance_2"),
        generator=torch.Generator().manual_seed(clip["seed"]), output_type="latent", **images).frames[0]


def make(name, model):
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pipeline = open_pipeline(folder, model)
    results, steps = {}, []
    for i, clip in enumerate(model["clips"]):
        latents = made(pipeline, clip)
        results[f"clip{i}.latents"] = frames_first(latents)
        times = pipeline.scheduler.timesteps.tolist()
        steps.append(sum(t >= BOUNDARY * 1000 for t in times))
        print(name, i, times, steps[-1], latents.abs().mean().item())
    save_file(results, folder / "pipeline.safetensors")
    write_json(folder / "pipeline.json", dict(
        height=HEIGHT, width=WIDTH, num_frames=FRAMES, clips=model["clips"], steps_of_first=steps,
        versions={m.__name__: m.__version__ for m in (diffusers, torch, transformers)}))


def main():
    if int(PIL.__version__.split(".")[0]) >= 13:
        sys.exit(f"Pillow {PIL.__version__} was found, a version before 13 is needed")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with torch.no_grad():
        for name, model in MODELS.items():
            make(name, model)


if __name__ == "__main__":
    main()

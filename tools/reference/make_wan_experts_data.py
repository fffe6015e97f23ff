#!/usr/bin/env python3
"""Makes tests/data/wan/experts: the second transformer of a model of two, and clips by diffusers' WanPipeline.

The other parts are those of tests/data/wan/float32. The boundary is a timestep of the first clip, which the first
transformer takes. pipeline.safetensors has the final latents of each clip, pipeline.json its settings. Everything is
float32 on the CPU.

To run it again, with the packages of make_wan_pipeline_data.py:
    python tools/reference/make_wan_experts_data.py
"""
import shutil
from pathlib import Path

import diffusers
import torch
import transformers
from safetensors.torch import save_file

from cogvideox_kinds import PROMPTS
from make_wan_data import KINDS, fill, frames_first, write_json
from make_wan_pipeline_data import FOLDER as FIRST

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "wan" / "experts"
HEIGHT, WIDTH, FRAMES = 48, 80, 9
BOUNDARY, SEED = 0.882, 7
CLIPS = [
    dict(prompt=PROMPTS[1], negative_prompt=PROMPTS[3], seed=42, steps=10, guidance=5.0, guidance_2=2.0),
    dict(prompt=PROMPTS[2], negative_prompt="", seed=7, steps=5, guidance=3.5),
    dict(prompt=PROMPTS[4], negative_prompt="", seed=9, steps=6, guidance=1.0, guidance_2=4.0),
]


def open_pipeline():
    second = FOLDER / "transformer_2"
    shutil.rmtree(second, ignore_errors=True)
    model = diffusers.WanTransformer3DModel(**KINDS["float32"]["transformer"])
    fill(model, torch.Generator().manual_seed(SEED)).save_pretrained(second)
    pipeline = diffusers.WanPipeline(
        tokenizer=transformers.T5Tokenizer.from_pretrained(FIRST / "tokenizer"),
        text_encoder=transformers.UMT5EncoderModel.from_pretrained(FIRST / "text_encoder").eval(),
        transformer=diffusers.WanTransformer3DModel.from_pretrained(FIRST / "transformer").eval(),
        transformer_2=diffusers.WanTransformer3DModel.from_pretrained(second).eval(),
        vae=diffusers.AutoencoderKLWan.from_pretrained(FIRST / "vae").eval(),
        scheduler=diffusers.UniPCMultistepScheduler.from_pretrained(FIRST / "scheduler"), boundary_ratio=BOUNDARY)
    pipeline.save_config(FOLDER)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    FOLDER.mkdir(exist_ok=True)
    results, steps = {}, []
    with torch.no_grad():
        pipeline = open_pipeline()
        for i, clip in enumerate(CLIPS):
            latents = pipeline(
                clip["prompt"], clip["negative_prompt"], height=HEIGHT, width=WIDTH, num_frames=FRAMES,
                num_inference_steps=clip["steps"], guidance_scale=clip["guidance"],
                guidance_scale_2=clip.get("guidance_2"), generator=torch.Generator().manual_seed(clip["seed"]),
                output_type="latent").frames[0]
            results[f"clip{i}.latents"] = frames_first(latents)
            times = pipeline.scheduler.timesteps.tolist()
            steps.append(sum(t >= BOUNDARY * 1000 for t in times))
            print(i, times, steps[-1], latents.abs().mean().item())
    save_file(results, FOLDER / "pipeline.safetensors")
    write_json(FOLDER / "pipeline.json", dict(
        height=HEIGHT, width=WIDTH, num_frames=FRAMES, clips=CLIPS, steps_of_first=steps,
        versions={m.__name__: m.__version__ for m in (diffusers, torch, transformers)}))


if __name__ == "__main__":
    main()

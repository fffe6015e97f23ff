#!/usr/bin/env python3
"""Makes clips of tests/data/wan/float32 from videos with diffusers' WanVideoToVideoPipeline.

The videos are those of tests/data/cogvideox/media, resized. One has 16 frames, of which 13 are used.
from_video.safetensors has the final latents and some frames of each clip, from_video.json its settings. Everything is
float32 on the CPU.

To run it again, with the packages of make_wan_pipeline_data.py:
    python tools/reference/make_wan_video_data.py
"""
import diffusers
import PIL.Image
import torch
from safetensors.torch import save_file

from cogvideox_kinds import PROMPTS
from make_cogvideox_media_data import read_video
from make_wan_data import frames_first, write_json
from make_wan_pipeline_data import DATA, KINDS, SHIFT, TEXTS, open_pipelines

HEIGHT, WIDTH, KEPT_FRAMES = 48, 80, [0, 1, 4, -1]
CLIPS = [
    dict(prompt=PROMPTS[1], negative_prompt=PROMPTS[3], seed=42, steps=5, guidance=5.0, strength=0.8,
         video="exact.mkv", frames=9),
    dict(prompt=PROMPTS[2], negative_prompt="", seed=7, steps=12, guidance=3.5, strength=0.5, video="long.mkv",
         frames=16),
    dict(prompt=PROMPTS[4], negative_prompt="", seed=9, steps=4, guidance=1.0, strength=0.6, video="exact.mkv",
         frames=5, scheduler="euler"),
    dict(prompt=PROMPTS[1], negative_prompt="", seed=3, steps=3, guidance=4.0, strength=1.0, video="exact.mkv",
         frames=5),
]


def made(clip):
    parts = open_pipelines(TEXTS, KINDS["float32"]["more"])[0].components
    parts = {name: part for name, part in parts.items() if not name.endswith("_2")}
    if "scheduler" in clip:
        parts["scheduler"] = diffusers.FlowMatchEulerDiscreteScheduler(shift=SHIFT)
    pipeline = diffusers.WanVideoToVideoPipeline(**parts)
    pipeline.set_progress_bar_config(disable=True)
    frames = read_video(DATA / "cogvideox" / "media" / clip["video"], clip["frames"])
    video = [PIL.Image.fromarray(frame) for frame in frames]

    def call(output_type):
        return pipeline(
            video, clip["prompt"], clip["negative_prompt"], height=HEIGHT, width=WIDTH,
            num_inference_steps=clip["steps"], guidance_scale=clip["guidance"], strength=clip["strength"],
            generator=torch.Generator().manual_seed(clip["seed"]), output_type=output_type).frames[0]
    latents, video_made = call("latent"), torch.from_numpy(call("np"))
    return {"latents": frames_first(latents),
            "frames": video_made[KEPT_FRAMES].mul(255).round().to(torch.float16).contiguous()}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    results = {}
    with torch.no_grad():
        for i, clip in enumerate(CLIPS):
            results |= {f"clip{i}.{key}": value for key, value in made(clip).items()}
    for key, value in results.items():
        print(key, tuple(value.shape), value.float().abs().mean().item())
    save_file(results, TEXTS / "from_video.safetensors")
    write_json(TEXTS / "from_video.json", dict(height=HEIGHT, width=WIDTH, frames=KEPT_FRAMES, clips=CLIPS))


if __name__ == "__main__":
    main()

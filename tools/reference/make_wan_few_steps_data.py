#!/usr/bin/env python3
"""Makes clips of tests/data/wan/float32 in a few steps, as distilled models are used, with diffusers' WanPipeline.

No guidance, FlowMatchEulerDiscreteScheduler with its own noise levels and with those that LightX2V gives its models,
and a LoRA. few_steps.safetensors has the final latents of each clip, few_steps.json its settings.

To run it again, with the packages of make_wan_pipeline_data.py and peft, after make_wan_lora_data.py:
    python tools/reference/make_wan_few_steps_data.py
"""
import diffusers
import torch
from safetensors.torch import save_file

from cogvideox_kinds import PROMPTS
from make_wan_data import frames_first, write_json
from make_wan_pipeline_data import KINDS, TEXTS, open_pipelines

SIZE = {key: KINDS["float32"][key] for key in ("height", "width", "num_frames")}
CLIPS = [
    dict(prompt=PROMPTS[1], seed=42, shift=5.0, steps=4, lora="causvid.safetensors", strength=0.5),
    dict(prompt=PROMPTS[2], seed=7, shift=5.0, steps=4, levels=[1.0, 0.75, 0.5, 0.25]),
    dict(prompt=PROMPTS[4], seed=3, shift=3.0, steps=3, levels=[0.9, 0.6, 0.1]),
]


class WithLevels(diffusers.FlowMatchEulerDiscreteScheduler):
    """WanPipeline passes no noise levels on."""
    levels = None

    def set_timesteps(self, num_inference_steps=None, device=None):
        if self.levels is None:
            return super().set_timesteps(num_inference_steps, device=device)
        return super().set_timesteps(sigmas=self.levels, device=device)


def made(clip):
    pipeline = open_pipelines(TEXTS, KINDS["float32"]["more"])[0]
    pipeline.scheduler = WithLevels(shift=clip["shift"])
    pipeline.scheduler.levels = clip.get("levels")
    if "lora" in clip:
        pipeline.load_lora_weights(str(TEXTS.parent / "lora"), weight_name=clip["lora"], adapter_name="one")
        pipeline.set_adapters(["one"], [clip["strength"]])
    return frames_first(pipeline(
        clip["prompt"], **SIZE, num_inference_steps=clip["steps"], guidance_scale=1.0,
        generator=torch.Generator().manual_seed(clip["seed"]), output_type="latent").frames[0])


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with torch.no_grad():
        results = {f"clip{i}.latents": made(clip) for i, clip in enumerate(CLIPS)}
    save_file(results, TEXTS / "few_steps.safetensors")
    write_json(TEXTS / "few_steps.json", SIZE | dict(clips=CLIPS))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/data/cogvideox/preview: what a tiny CogVideoX checkpoint has of a clip after each step.

The pipeline of diffusers, in float32 on the CPU: of each step the clean latents that its scheduler
predicts (pred_original_sample), and the video that the VAE makes of those after step LEFT.
tests/data/cogvideox/README.md describes the tensors.

To run it again, with the packages of make_cogvideox_data.py and the checkpoints that it wrote:
    python tools/reference/make_cogvideox_preview_data.py
"""

import functools

import torch
from safetensors.torch import save_file

import make_cogvideox_data as from_text
from cogvideox_kinds import KINDS

KIND = "rotary"
CLIP = dict(prompt="one", negative_prompt="", seed=42, height=32, width=32, frames=8, steps=6)
LEFT = 2


def run(checkpoints):
    """Clean latents [step, frame, channel, row, column]; video, uint8 [frame, row, column, channel]."""
    kind = KINDS[KIND]
    pipeline = from_text.load(checkpoints / KIND, torch.float32)
    clean, step = [], pipeline.scheduler.step

    @functools.wraps(step)  # the pipeline looks at its parameters
    def noting(*args, **more):
        latents, predicted = step(*args, **more)
        clean.append(predicted[0].clone())
        return latents, predicted

    pipeline.scheduler.step = noting
    pipeline(prompt=CLIP["prompt"], negative_prompt=CLIP["negative_prompt"], height=CLIP["height"],
             width=CLIP["width"], num_frames=CLIP["frames"], num_inference_steps=CLIP["steps"],
             guidance_scale=kind["guidance"], use_dynamic_cfg=kind["dynamic"],
             generator=torch.Generator().manual_seed(CLIP["seed"]), output_type="latent",
             max_sequence_length=kind["max_length"])
    decoded = pipeline.decode_latents(clean[LEFT - 1][None])[0]
    return torch.stack(clean), from_text.to_bytes(pipeline, decoded)


def main():
    from_text.prepare_libraries()
    checkpoints, out = from_text.folders_given(__doc__, "preview")
    clean, video = run(checkpoints)
    levels = video.float()
    print(f"largest clean latents {[round(float(x.abs().max()), 2) for x in clean]}, video {list(video.shape)} "
          f"mean {levels.mean():.1f} std {levels.std():.1f}")
    assert torch.isfinite(clean).all() and levels.std() > 5
    assert float((clean[LEFT - 1] - clean[-1]).abs().max()) > 0.1 * float(clean[-1].abs().max())
    save_file({"latents": clean[LEFT - 1].contiguous(), "video": video.contiguous()}, out / "reference.safetensors")
    (out / "reference.safetensors").chmod(0o644)
    kind = KINDS[KIND]
    from_text.write_json(out / "reference.json", {"kind": KIND} | CLIP | {
        "guidance": kind["guidance"], "dynamic_guidance": kind["dynamic"], "stop_after": LEFT})


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/data/cogvideox/encoder: what diffusers' AutoencoderKLCogVideoX encodes.

The checkpoints are those in tests/data/cogvideox (make_cogvideox_data.py, which says what to
install). For each kind and number of frames, KIND.safetensors gets the posterior of a clip in float32
on the CPU, and a sample of it; bf16_errors.json gets the errors of PyTorch's bfloat16 against these.

    python tools/reference/make_cogvideox_encoder_data.py [--out FOLDER]
"""
import argparse
import json
from pathlib import Path

import diffusers
import numpy as np
import torch
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"sincos": (112, 80), "rotary": (56, 72), "v1_5": (48, 40)}
FRAMES = (1, 9, 13, 16, 17)


def pixels(frames, height, width):
    """uint8 [frame, row, column, 3]: a gradient that moves, with noise; tests compute the same."""
    t, r, c, k = np.meshgrid(*(np.arange(n, dtype=np.uint32) for n in (frames, height, width, 3)), indexing="ij")
    number = ((t * height + r) * width + c) * 3 + k
    noise = (number * np.uint32(2654435761)) >> np.uint32(26)
    return ((r * 2 + c * 3 + t * 9 + k * 60 + noise) % 256).astype(np.uint8)


def values(frames):
    """[1, channel, frame, row, column] in −1 … 1, as the pipelines' VideoProcessor makes them."""
    scaled = torch.from_numpy(frames.astype(np.float32) / 255.0)
    return (2.0 * scaled - 1.0).permute(3, 0, 1, 2)[None].contiguous()


def encode(vae, x, noise, scale):
    """Moments and scaled sample, [frame, channel, row, column]."""
    posterior = vae.encode(x.to(vae.dtype)).latent_dist
    sample = posterior.mean + posterior.std * noise.to(vae.dtype)
    return {"moments": posterior.parameters[0].transpose(0, 1), "sample": (scale * sample)[0].transpose(0, 1)}


def error(got, expected):
    """Maximum and root-mean-square error, both divided by the largest expected absolute value."""
    difference, largest = got.double() - expected.double(), expected.double().abs().max()
    return {"max": float(difference.abs().max() / largest), "rms": float(difference.pow(2).mean().sqrt() / largest)}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=ROOT / "tests/data/cogvideox/encoder", help="folder to write into")
    options = options.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(False)
    errors = {}
    for kind, (height, width) in SIZES.items():
        vae = {dtype: diffusers.AutoencoderKLCogVideoX.from_pretrained(
            ROOT / "tests/data/cogvideox" / kind / "vae", torch_dtype=dtype).eval()
            for dtype in (torch.float32, torch.bfloat16)}
        config = vae[torch.float32].config
        scale = 1 / config.scaling_factor if config.invert_scale_latents else config.scaling_factor
        tensors, errors[kind] = {}, {}
        for count in FRAMES:
            x = values(pixels(count, height, width))
            mean = vae[torch.float32].encode(x).latent_dist.mean
            noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(count))
            result = {dtype: encode(one, x, noise, scale) for dtype, one in vae.items()}
            tensors[f"noise_{count}"] = noise[0].transpose(0, 1)
            for name, expected in result[torch.float32].items():
                tensors[f"{name}_{count}"] = expected
                errors[kind].setdefault(name, {})[str(count)] = error(result[torch.bfloat16][name], expected)
            moments = tensors[f"moments_{count}"]
            print(f"{kind} {count} frames: mean rms {moments[:, :len(moments[0]) // 2].pow(2).mean().sqrt():.2f}, "
                  f"logvar rms {moments[:, len(moments[0]) // 2:].pow(2).mean().sqrt():.2f}, "
                  f"bfloat16 {errors[kind]['moments'][str(count)]}")
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()},
                  options.out / f"{kind}.safetensors")
        (options.out / f"{kind}.safetensors").chmod(0o644)
    (options.out / "bf16_errors.json").write_text(json.dumps(errors, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/data/opensora/encoder: what encode() of Open-Sora's own VAEs gives.

The checkpoints are those in tests/data/opensora (make_opensora_data.py, which says what to install and clone). For each
kind and number of frames, KIND.safetensors gets the posterior of a clip in float32 on the CPU, and the sample that
encode() gives; bf16_errors.json gets the errors of PyTorch's bfloat16 against these.

encode() draws samples of posteriors. Here the noise is given, and in v1_2 the posteriors of images give their mean, as
in reelmesh: only the temporal VAE's is sampled.

    python tools/reference/make_opensora_encoder_data.py --v1-0 open-sora-1.0 --v1-2 open-sora-1.2
"""
import json
from unittest import mock

import torch
from diffusers.models.autoencoders import vae as diffusers_vae
from safetensors.torch import save_file

import opensora_release
from make_cogvideox_encoder_data import error, pixels
from make_opensora_data import given_options, prepare_libraries, video_vae
from opensora_kinds import KINDS

HEIGHT, WIDTH = 24, 40
FRAMES = {"v1_0": (1, 3), "v1_2": (1, 8, 17, 22)}  # 22: a group of 17 frames and one of 5


def values(frames):
    """[1, channel, frame, row, column] in −1 … 1, as Open-Sora's transforms make them of uint8."""
    return ((torch.from_numpy(frames).permute(3, 0, 1, 2)[None].float() / 255.0) - 0.5) / 0.5


class Given:
    """Replaces sample() of posteriors: uses the next entries of the given noise, and records the moments."""

    def __init__(self, noise, along):
        self.noise, self.along, self.moments = noise, along, []

    def sample(self, posterior):
        taken = sum(m.shape[self.along] for m in self.moments)
        self.moments.append(posterior.parameters)
        part = self.noise.narrow(self.along, taken, posterior.mean.shape[self.along])
        return posterior.mean + posterior.std * part.to(posterior.mean.dtype)


def encode(vae, temporal, count, noise):
    """Moments and result of encode(), [frame, channel, row, column]. noise: [frame, channel, row, column]."""
    of_images = diffusers_vae.DiagonalGaussianDistribution
    x = values(pixels(count, HEIGHT, WIDTH))
    given = Given(noise.transpose(0, 1)[None] if temporal else noise, along=2 if temporal else 0)
    sampled = temporal.DiagonalGaussianDistribution if temporal else of_images
    with mock.patch.object(of_images, "sample", of_images.mode), mock.patch.object(
            sampled, "sample", lambda posterior: given.sample(posterior)):
        result = vae.encode(x.to(next(vae.parameters()).dtype))[0].transpose(0, 1)
    moments = torch.cat(given.moments, given.along)
    return {"moments": moments[0].transpose(0, 1) if temporal else moments, "sample": result}


def open_vae(name, folder, options):
    """The VAE of a release, and the module with the posterior of its temporal VAE."""
    if name == "v1_0":
        (vaes,) = opensora_release.load(options.v1_0, ["models.vae.vae"])
        return lambda: vaes.VideoAutoencoderKL(folder / "vae").eval().float(), None
    vaes, temporal = opensora_release.load(options.v1_2, ["models.vae.vae", "models.vae.vae_temporal"])
    return lambda: video_vae(KINDS[name], folder, vaes), temporal


def main():
    options = given_options(__doc__)
    prepare_libraries()
    out = options.out / "encoder"
    out.mkdir(parents=True, exist_ok=True)
    errors = {}
    for name, counts in FRAMES.items():
        opened, temporal = open_vae(name, options.out / name, options)
        exact, rounded = opened(), opened().to(torch.bfloat16)
        tensors, errors[name] = {}, {}
        for count in counts:
            shape = exact.get_latent_size([count, HEIGHT, WIDTH])
            noise = torch.randn((shape[0], 4, *shape[1:]), generator=torch.Generator().manual_seed(count))
            expected, found = encode(exact, temporal, count, noise), encode(rounded, temporal, count, noise)
            tensors[f"noise_{count}"] = noise
            for what in expected:
                tensors[f"{what}_{count}"] = expected[what]
                errors[name].setdefault(what, {})[str(count)] = error(found[what], expected[what])
            mean, log_variance = expected["moments"].chunk(2, 1)
            print(f"{name} {count} frames: {list(noise.shape)}, mean rms {mean.pow(2).mean().sqrt():.2f}, "
                  f"logvar {log_variance.min():.2f} to {log_variance.max():.2f}, "
                  f"sample rms {expected['sample'].pow(2).mean().sqrt():.2f}, "
                  f"bfloat16 {errors[name]['sample'][str(count)]}")
        save_file({k: v.contiguous().clone() for k, v in tensors.items()}, out / f"{name}.safetensors")
        (out / f"{name}.safetensors").chmod(0o644)
    (out / "bf16_errors.json").write_text(json.dumps(errors, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/data/sampler: noise, schedules and sampler trajectories of torch and diffusers.

Needs torch and diffusers (0.36) from PyPI, on an x86 processor with AVX2: on others torch.randn
computes logarithms and sines with another library, and some last bits differ.

    python3 tools/reference/make_sampler_data.py [tests/data/sampler]
"""
import math
import pathlib
import sys

import torch
from diffusers import CogVideoXDDIMScheduler, CogVideoXDPMScheduler

torch.set_num_threads(1)
KINDS = {"ddim": CogVideoXDDIMScheduler, "dpm": CogVideoXDPMScheduler}
SEEDS = [0, 42, 2**33 + 5, 2**64 - 1]
COUNTS = [5, 16, 20, 37, 1000, 1123200]
# kind, steps, spacing, SNR shift, zero SNR, last alpha is one
TRAJECTORIES = [
    (kind, *rest)
    for kind in KINDS
    for rest in [
        (4, "trailing", 3.0, 1, 1),
        (50, "trailing", 3.0, 1, 1),
        (4, "trailing", 1.0, 1, 1),
        (50, "trailing", 1.0, 1, 1),
        (61, "trailing", 1.0, 1, 1),
        (1, "trailing", 3.0, 1, 1),
        (7, "leading", 3.0, 0, 0),
        (10, "linspace", 1.0, 0, 1),
    ]
]
NUMEL = 20
# As TRAJECTORIES, with the type of the latents and the strength of video to video.
STARTS = [
    (kind, steps, "trailing", shift, 1, 1, dtype, strength)
    for kind in KINDS
    for steps, shift, dtype, strength in [
        (50, 3.0, "float32", 0.8), (50, 1.0, "bfloat16", 0.6), (61, 1.0, "float32", 0.3),
        (4, 3.0, "float16", 1.0), (7, 1.0, "float32", 0.29), (20, 3.0, "bfloat16", 0.05)]
]


def scheduler(kind, spacing, shift, zero_snr, last_is_one):
    return KINDS[kind](
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False,
        num_train_timesteps=1000, prediction_type="v_prediction",
        rescale_betas_zero_snr=bool(zero_snr), snr_shift_scale=shift,
        set_alpha_to_one=bool(last_is_one), timestep_spacing=spacing)


def fnv(data):
    """64-bit FNV-1a hash over words instead of bytes."""
    value = 0xCBF29CE484222325
    for word in data:
        value = ((value ^ word) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def words(tensor):
    return [w & 0xFFFFFFFF for w in tensor.contiguous().view(torch.int32).flatten().tolist()]


def hexes(tensor):
    return " ".join(f"{w:08x}" for w in words(tensor))


def noise():
    """Lines: seed count hash, bits of the first and the last 4 values."""
    for seed in SEEDS:
        for count in COUNTS:
            x = torch.randn(count, generator=torch.Generator().manual_seed(seed))
            yield f"{seed} {count} {fnv(words(x))} {hexes(x[:4])} {hexes(x[-4:])}"


def sequence():
    """Bits of several draws from one generator, one after the other."""
    generator = torch.Generator().manual_seed(1)
    draws = [torch.randn(count, generator=generator) for count in (37, 3, 20, 2, 5)]
    yield hexes(torch.cat(draws))


def trajectory(kind, steps, spacing, shift, zero_snr, last_is_one):
    """Latents after each call. As in the pipeline, latents and noise come from one generator;
    predictions from another."""
    reference = scheduler(kind, spacing, shift, zero_snr, last_is_one)
    reference.set_timesteps(steps)
    generator = torch.Generator().manual_seed(3)
    predictions = torch.Generator().manual_seed(7)
    x = torch.randn(NUMEL, generator=generator)
    old, states = None, []
    timesteps = reference.timesteps
    for i, t in enumerate(timesteps):
        v = torch.randn(NUMEL, generator=predictions)
        if kind == "ddim":
            x = reference.step(v, t, x, return_dict=False)[0]
        else:
            before = timesteps[i - 1] if i > 0 else None
            x, old = reference.step(v, old, t, before, x, generator=generator, return_dict=False)
        states.append(x)
    return states


def trajectories():
    """Lines: the case and its number of calls, then the bits after the first three calls and the
    last one (all, if there are at most three)."""
    for case in TRAJECTORIES:
        states = trajectory(*case)
        kept = states[:3] + states[-1:] if len(states) > 3 else states
        yield " ".join(map(str, case)) + f" {len(states)}"
        yield from (hexes(x) for x in kept)


def starts():
    """Lines: the case, its number of calls and its first timestep; then the bits of the latents
    with noise, and those after two calls (or one). As in CogVideoXVideoToVideoPipeline, which
    computes 1 of 20 steps with strength 0.05; predictions come from another generator."""
    for kind, steps, *config, dtype, strength in STARTS:
        reference = scheduler(kind, *config)
        reference.set_timesteps(steps)
        count = min(int(steps * strength), steps)
        times = reference.timesteps[max(steps - count, 0):]
        generator = torch.Generator().manual_seed(3)
        predictions = torch.Generator().manual_seed(7)
        clean, noise = (torch.randn(NUMEL, generator=generator).to(getattr(torch, dtype))
                        for _ in range(2))
        x = reference.add_noise(clean, noise, times[:1]).float()
        values, old = [x], None
        for i, t in enumerate(times[:2]):
            v = torch.randn(NUMEL, generator=predictions)
            if kind == "ddim":
                x = reference.step(v, t, x, return_dict=False)[0]
            else:
                before = times[i - 1] if i > 0 else None
                x, old = reference.step(v, old, t, before, x, generator=generator,
                                        return_dict=False)
            values.append(x)
        case = (kind, steps, *config, dtype, strength, len(times), times[0].item())
        yield " ".join(map(str, case))
        yield from (hexes(x) for x in values)


def timesteps():
    """Lines: spacing first last hash. The hash covers the timesteps for all numbers of steps from
    first to last."""
    for spacing in ("trailing", "leading", "linspace"):
        reference = scheduler("ddim", spacing, 3.0, 1, 1)
        for first in range(1, 1001, 50):
            values = []
            for steps in range(first, first + 50):
                reference.set_timesteps(steps)
                values += [t % 2**64 for t in reference.timesteps.tolist()]
            yield f"{spacing} {first} {first + 49} {fnv(values)}"


def alphas():
    """Lines: shift zero-SNR index value, for every 37th alphas_cumprod and the last two."""
    for shift in (3.0, 1.0):
        for zero_snr in (1, 0):
            table = scheduler("ddim", "trailing", shift, zero_snr, 1).alphas_cumprod
            for i in [*range(0, 998, 37), 998, 999]:
                yield f"{shift} {zero_snr} {i} {table[i].item():.17g}"


def guidance():
    """Lines: scale steps timestep value, by the pipeline's formula for dynamic guidance."""
    for scale, steps in ((6.0, 50), (7.5, 61)):
        reference = scheduler("dpm", "trailing", 1.0, 1, 1)
        reference.set_timesteps(steps)
        for t in reference.timesteps.tolist():
            value = 1 + scale * ((1 - math.cos(math.pi * ((steps - t) / steps) ** 5.0)) / 2)
            yield f"{scale} {steps} {t} {value:.17g}"


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/sampler")
    folder.mkdir(parents=True, exist_ok=True)
    for make in (noise, sequence, trajectories, starts, timesteps, alphas, guidance):
        (folder / f"{make.__name__}.txt").write_text("".join(f"{line}\n" for line in make()))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/data/train/order.txt: random numbers of training, as torch draws them.

Needs torch from PyPI, on an x86 processor with AVX2, as make_sampler_data.py.

    python3 tools/reference/make_train_data.py [tests/data/train]

A line `perm SEED COUNT HASH FIRST…`: torch.randperm. A line `sample SEED PADDING FRAMES CHANNELS
ROWS COLUMNS POSTERIOR TIMESTEP RAND HASH HASH HASH FIRST LAST`: timestep, dropout of the caption,
noise of the posterior (POSTERIOR 1), noise, noise of PADDING frames; bits of float32 in hexadecimal;
hashes of the three arrays, first and last value of the noise. A line `image SEED PADDING FRAMES
CHANNELS ROWS COLUMNS POSTERIOR RAND LEVEL HASH HASH HASH`: of a model that takes an image, its
dropout, the level of noise, noise of the latents, of the image's pixels [row, column, colour], of
which each latent has 8 x 8, and of its posterior. A line `times SEED MEAN STD UNIFORM LOGIT INDEX`:
timesteps of flows, of 1000, that are drawn first: uniform and logit-normal ones, and the index of the
latter that compute_density_for_timestep_sampling of diffusers leads to.
"""
import pathlib
import sys

import torch

torch.set_num_threads(1)
COUNTS = [0, 1, 2, 5, 100, 1000, 70000]
SEEDS = [0, 42, 43, 2**32 - 1, 2**33 + 5]
LATENTS = [(1, 2, 2, 3), (3, 4, 6, 10), (2, 16, 5, 7), (1, 3, 5, 1)]  # 12, 720, 1120, 15 values


def fnv(words):
    """64-bit FNV-1a hash over words instead of bytes."""
    value = 0xCBF29CE484222325
    for word in words:
        value = ((value ^ word) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def bits(values):
    return [word & 0xFFFFFFFF for word in values.flatten().view(torch.int32).tolist()]


def perm_line(seed, count):
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return " ".join(map(str, ["perm", seed, count, fnv(order), *order[:5]]))


def sample_line(seed, shape, padding, posterior):
    generator = torch.Generator().manual_seed(seed)
    timestep = torch.randint(0, 1000, (1,), generator=generator).item()
    dropout = torch.rand(1, generator=generator)
    of_posterior = torch.randn(shape, generator=generator) if posterior else torch.empty(0)
    noise = torch.randn(shape, generator=generator)
    of_padding = torch.randn((padding, *shape[1:]), generator=generator)
    words = bits(noise)
    return " ".join(map(str, [
        "sample", seed, padding, *shape, int(posterior), timestep, f"{bits(dropout)[0]:08x}",
        fnv(bits(of_posterior)), fnv(words), fnv(bits(of_padding)),
        f"{words[0]:08x}", f"{words[-1]:08x}"]))


def image_line(seed, shape, padding, posterior):
    generator = torch.Generator().manual_seed(seed)
    torch.randint(0, 1000, (1,), generator=generator)
    torch.rand(1, generator=generator)
    dropout = torch.rand(1, generator=generator)
    level = torch.exp(-3.0 + 0.5 * torch.randn(1, generator=generator))
    if posterior:
        torch.randn(shape, generator=generator)
    noise = torch.randn(shape, generator=generator)
    torch.randn((padding, *shape[1:]), generator=generator)
    of_pixels = torch.randn((3, 8 * shape[2], 8 * shape[3]), generator=generator).permute(1, 2, 0)
    of_image = torch.randn(shape[1:], generator=generator) if posterior else torch.empty(0)
    return " ".join(map(str, [
        "image", seed, padding, *shape, int(posterior), f"{bits(dropout)[0]:08x}",
        f"{bits(level)[0]:08x}", *(fnv(bits(x)) for x in (noise, of_pixels, of_image))]))


def times_line(seed, mean, std):
    def generator():
        return torch.Generator().manual_seed(seed)
    uniform = torch.rand(1, generator=generator()) * 1000
    logit = torch.sigmoid(torch.normal(mean, std, (1,), generator=generator()))
    return (f"times {seed} {mean} {std} {uniform.item()!r} {(logit * 1000).item()!r} "
            f"{(logit * 1000).long().item()}")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/train")
    folder.mkdir(parents=True, exist_ok=True)
    lines = [perm_line(seed, count) for count in COUNTS for seed in SEEDS[:3]]
    lines += [sample_line(seed, shape, padding, posterior)
              for seed in SEEDS for shape in LATENTS for padding in (0, 1) for posterior in (0, 1)]
    lines += [image_line(seed, shape, padding, posterior)
              for seed in SEEDS for shape in LATENTS for padding in (0, 1) for posterior in (0, 1)]
    lines += [times_line(seed, mean, std)
              for seed in SEEDS for mean, std in ((0.0, 1.0), (-0.5, 1.5), (6.0, 3.0))]
    (folder / "order.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

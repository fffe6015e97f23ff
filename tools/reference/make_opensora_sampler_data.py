#!/usr/bin/env python3
"""Writes tests/data/sampler/open_sora_trajectories.txt: Open-Sora's own samplers with a model that returns noise.

To run it again (packages as in make_opensora_data.py):
    git clone --branch v1.0.0 https://github.com/hpcaitech/Open-Sora open-sora-1.0
    git clone --branch v1.2.0 https://github.com/hpcaitech/Open-Sora open-sora-1.2
    python tools/reference/make_opensora_sampler_data.py --v1-0 open-sora-1.0 --v1-2 open-sora-1.2

For each run: a line `iddpm STEPS CALLS` or `rflow STEPS CALLS TRANSFORM DISCRETE HEIGHT WIDTH FRAMES`; a line with the
timesteps; a line with the latents [channel, frame, row, column] after each of the first three calls and the last one,
as bits of float32. Latents and the sampler's noise come from seed 3. The outputs of the model come from a generator
of seed 7: one tensor [2, 8, frame, row, column] per call, whose null branch is the first plus a tenth of the second.
"""
import argparse
from pathlib import Path

import torch

import opensora_release

SHAPE = (4, 3, 2, 5)
IDDPM = [4, 10, 61, 100, 1000]
# steps, transform, discrete, height, width, frames
RFLOW = [(6, 1, 0, 104, 72, 51), (30, 1, 0, 240, 426, 51), (10, 0, 0, 64, 64, 16), (7, 0, 1, 64, 64, 16), (30, 1, 1, 720, 1280, 1)]


class Model:
    def __init__(self):
        self.generator = torch.Generator().manual_seed(7)
        self.latents, self.timesteps = [], []

    def forward(self, x, timestep, *args, **kwargs):
        self.latents.append(x[0].clone())
        self.timesteps.append(float(timestep[0]))
        out = torch.randn((2, 8, *SHAPE[1:]), generator=self.generator)
        return torch.stack([out[0], out[0] + 0.1 * out[1]])

    __call__ = forward


class Text:
    def encode(self, prompts):
        return {"y": torch.zeros(1, 1, 1, 1)}

    null = staticmethod(lambda n: torch.zeros(n, 1, 1, 1))


def lines(head, model, final):
    after = [*model.latents[1:], final[0]]
    yield f"{head[0]} {head[1]} {len(after)} {' '.join(map(str, head[2:]))}".strip()
    yield " ".join(f"{t:.9g}" for t in model.timesteps)
    for i, x in enumerate(after):
        if i < 3 or i + 1 == len(after):
            words = x.contiguous().view(torch.int32).flatten().tolist()
            yield " ".join(f"{w & 0xFFFFFFFF:08x}" for w in words)


def main():
    root = Path(__file__).resolve().parents[2]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--v1-0", type=Path, required=True, help="checkout of Open-Sora v1.0.0")
    options.add_argument("--v1-2", type=Path, required=True, help="checkout of Open-Sora v1.2.0")
    options.add_argument("--out", type=Path, default=root / "tests/data/sampler/open_sora_trajectories.txt")
    options = options.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    text = []
    (iddpm,) = opensora_release.load(options.v1_0, ["schedulers.iddpm"])
    for steps in IDDPM:
        model = Model()
        torch.manual_seed(3)
        final = iddpm.IDDPM(num_sampling_steps=steps, cfg_scale=7.0).sample(model, Text(), SHAPE, [""], "cpu")
        text += lines(("iddpm", steps), model, final)
    (rf,) = opensora_release.load(options.v1_2, ["schedulers.rf"])
    for steps, transform, discrete, height, width, frames in RFLOW:
        model = Model()
        torch.manual_seed(3)
        z = torch.randn(1, *SHAPE)
        sampler = rf.RFLOW(num_sampling_steps=steps, cfg_scale=7.0, use_timestep_transform=bool(transform),
                           use_discrete_timesteps=bool(discrete))
        size = {"height": torch.tensor([float(height)]), "width": torch.tensor([float(width)]),
                "num_frames": torch.tensor([float(frames)])}
        final = sampler.sample(model, Text(), z, [""], "cpu", additional_args=size, progress=False)
        text += lines(("rflow", steps, transform, discrete, height, width, frames), model, final)
    options.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()

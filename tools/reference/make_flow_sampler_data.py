#!/usr/bin/env python3
"""Writes tests/data/sampler/flow.json: schedules and steps of diffusers' samplers of flow models.

In step i the model's prediction for element k is ((7919 i + 104729 k) mod 1000)/500 - 1 for the
kind "rough", and x/2 + t/1000 - 1/4 for "smooth", where t is the timestep. "x" has the latents
after each step; they begin as k - 2.

    pip install "torch==2.15.*" "diffusers==0.36.*"
    python tools/reference/make_flow_sampler_data.py
"""
import json
from pathlib import Path

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

OUTPUT = Path(__file__).resolve().parents[2] / "tests" / "data" / "sampler" / "flow.json"
ELEMENTS = 6
CASES = [("unipc", steps, shift) for steps, shift in
         [(1, 3.0), (2, 3.0), (3, 5.0), (10, 3.0), (10, 5.0), (50, 3.0), (50, 5.0), (7, 1.0), (40, 12.0)]]
CASES += [("euler", steps, shift) for steps, shift in [(1, 3.0), (4, 5.0), (50, 3.0), (7, 1.0)]]
# With noise levels of their own, as distilled models have them.
CASES += [("euler", len(levels), shift, levels) for shift, levels in
          [(5.0, [1, 0.75, 0.5, 0.25]), (3.0, [0.9, 0.6, 0.1]), (1.0, [1])]]


def scheduler(name, shift):
    if name == "euler":
        return FlowMatchEulerDiscreteScheduler(shift=shift)
    return UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=shift)


def walk(name, steps, shift, levels, kind):
    sampler = scheduler(name, shift)
    if levels:
        sampler.set_timesteps(sigmas=levels)
    else:
        sampler.set_timesteps(steps)
    x, after = torch.arange(ELEMENTS, dtype=torch.float32) - 2, []
    for i, t in enumerate(sampler.timesteps):
        rough = [((7919 * i + 104729 * k) % 1000) / 500 - 1 for k in range(ELEMENTS)]
        v = torch.tensor(rough) if kind == "rough" else x / 2 + (t / 1000 - 0.25)
        x = sampler.step(v.reshape(1, 1, 1, 1, -1), t, x.reshape(1, 1, 1, 1, -1), return_dict=False)[0].reshape(-1)
        after.append(x.tolist())
    given = {"levels": levels} if levels else {}
    return {"sampler": name, "steps": steps, "shift": shift} | given | {
        "kind": kind, "sigmas": sampler.sigmas.tolist(),
            "timesteps": sampler.timesteps.tolist(), "x": after}


def main():
    torch.set_num_threads(1)
    lines = [json.dumps(walk(*case, *[None] * (4 - len(case)), kind), separators=(",", ":"))
             for case in CASES for kind in ("rough", "smooth")]
    OUTPUT.write_text("[" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
    main()

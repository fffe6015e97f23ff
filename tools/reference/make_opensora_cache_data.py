#!/usr/bin/env python3
"""Makes tests/data/opensora/cache: clips of the tiny Open-Sora checkpoints with steps left out.

Open-Sora's own code, in float32 on the CPU, with the rule of TeaCache around the transformer's blocks:
ali-vilab/TeaCache at 7c10efc, eval/teacache/experiments/opensora.py. What the first block's attention gets, its
change, polynomial and sum are computed by PyTorch here. That script is for Open-Sora 1.2; the same rule is applied to
1.0. reference.safetensors has the final latents of each case, [channel, frame, row, column], reference.json its
settings and which steps were computed.

To run it again, with the packages and checkouts of make_opensora_data.py and the checkpoints that it wrote:
    python tools/reference/make_opensora_cache_data.py --v1-0 open-sora-1.0 --v1-2 open-sora-1.2
"""
import numpy
import torch
from safetensors.torch import save_file

import make_opensora_data as whole
import opensora_release
from make_cogvideox_data import write_json
from opensora_checkpoints import weights_of
from opensora_kinds import KINDS, PROMPTS

STEPS, SEED, PROMPT = 12, 42, 0
CASES = {
    "v1_2": dict(kind="v1_2", threshold=0.3, coefficients=[0.0, 0.0, 0.0, 1.0, 0.0]),
    "v1_2.polynomial": dict(kind="v1_2", threshold=0.5, coefficients=[0.05, -0.1, 0.3, 0.4, 0.1]),
    "v1_0": dict(kind="v1_0", threshold=0.5, coefficients=[0.0, 0.0, 0.0, 1.0, 0.0]),
}


class Cached(torch.nn.Module):
    """Takes the place of all blocks. Calls them, or adds what they added in the last call."""

    def __init__(self, case, modulate, first, run):
        super().__init__()
        self.case, self.modulate, self.first, self.run = case, modulate, first, run
        self.computed, self.distances = [], []
        self.sum, self.before, self.residual = 0.0, None, None

    def computes(self, x, t):
        shift, scale, *_ = (self.first.scale_shift_table[None] + t.reshape(len(x), 6, -1)).chunk(6, dim=1)
        now, before, step = self.modulate(self.first.norm1(x), shift, scale), self.before, len(self.computed)
        self.before = now
        if step == 0 or step == STEPS - 1:
            self.sum = 0.0
            return True
        self.distances.append(((now - before).abs().mean() / before.abs().mean()).item())
        self.sum += numpy.poly1d(self.case["coefficients"])(self.distances[-1])
        if self.sum < self.case["threshold"]:
            return False
        self.sum = 0.0
        return True

    def forward(self, x, y, t, *more):
        self.computed.append(self.computes(x, t))
        if self.computed[-1]:
            after = self.run(x, y, t, *more)
            self.residual = after - x
            return after
        return x + self.residual


class Same(torch.nn.Module):
    def forward(self, x, *more):
        return x


def clip_v1_0(case, kind, folder, release):
    stdit, t5, iddpm = opensora_release.load(
        release, ["models.stdit.stdit", "models.text_encoder.t5", "schedulers.iddpm"])
    model = whole.transformer_v1_0(stdit, kind, folder)
    encoder = whole.text_encoder_of(t5, folder, kind, model.y_embedder)
    blocks = model.blocks

    def run(x, y, t, lengths, positions):
        for i, block in enumerate(blocks):
            x = block(x, y, t, lengths, positions if i == 0 else None)
        return x

    cached = Cached(case, stdit.t2i_modulate, blocks[0], run)
    model.blocks = torch.nn.ModuleList([cached])
    scheduler = iddpm.IDDPM(**{**kind["scheduler"], "num_sampling_steps": STEPS})
    torch.manual_seed(SEED)
    shape = (4, *kind["transformer"]["input_size"])
    return scheduler.sample(model, encoder, shape, [PROMPTS[PROMPT]], "cpu")[0], cached


def clip_v1_2(case, kind, folder, release):
    stdit, t5, vaes, _, rf, scripts = opensora_release.load(
        release, ["models.stdit.stdit3", "models.text_encoder.t5", "models.vae.vae", "models.vae.vae_temporal",
                  "schedulers.rf", "utils.inference_utils"])
    model = stdit.STDiT3(stdit.STDiT3Config(**kind["transformer"])).eval()
    model.load_state_dict(weights_of(folder / "transformer"))
    encoder = whole.text_encoder_of(t5, folder, kind, model.y_embedder)
    pairs = list(zip(model.spatial_blocks, model.temporal_blocks))

    def run(x, *more):
        for pair in pairs:
            for block in pair:
                x = block(x, *more)
        return x

    cached = Cached(case, stdit.t2i_modulate, pairs[0][0], run)
    model.spatial_blocks, model.temporal_blocks = torch.nn.ModuleList([cached]), torch.nn.ModuleList([Same()])
    vae = whole.video_vae(kind, folder, vaes)
    conditions = scripts.prepare_multi_resolution_info(
        "STDiT2", 1, **whole.pixels_of(kind), device="cpu", dtype=torch.float32)
    text = t5.text_preprocessing(scripts.append_score_to_prompts([PROMPTS[PROMPT]], aes=kind["aes"])[0])
    size = vae.get_latent_size([kind["num_frames"], kind["height"], kind["width"]])
    scheduler = rf.RFLOW(**{**kind["scheduler"], "num_sampling_steps": STEPS})
    torch.manual_seed(SEED)
    z = torch.randn(1, vae.out_channels, *size)
    return scheduler.sample(model, encoder, z=z, prompts=[text], device="cpu", additional_args=conditions,
                            progress=False)[0], cached


def main():
    options = whole.given_options(__doc__)
    whole.prepare_libraries()
    tensors, facts = {}, {}
    for name, case in CASES.items():
        kind, folder = KINDS[case["kind"]], options.out / case["kind"]
        clip, release = {"v1_0": (clip_v1_0, options.v1_0), "v1_2": (clip_v1_2, options.v1_2)}[case["kind"]]
        latents, cached = clip(case, kind, folder, release)
        all_steps, _ = clip({**case, "threshold": 0.0}, kind, folder, release)
        change = float((latents - all_steps).abs().max() / all_steps.abs().max())
        print(f"{name}: {sum(cached.computed)} of {STEPS} steps computed, distances "
              f"{[round(d, 3) for d in cached.distances]}, change against all steps {change:.3f}")
        assert torch.isfinite(latents).all() and change > 1e-3, name
        tensors[name] = latents.contiguous().clone()
        facts[name] = {
            "kind": case["kind"], "prompt": PROMPTS[PROMPT], "seed": SEED, "steps": STEPS,
            "guidance": kind["scheduler"]["cfg_scale"], "cache": f"teacache:{case['threshold']:g}",
            "cache_coefficients": ",".join(repr(c) for c in case["coefficients"]), "computed": cached.computed}
        if case["kind"] == "v1_2":
            facts[name] |= {"height": kind["height"], "width": kind["width"], "frames": kind["num_frames"],
                            "fps": kind["fps"]}
    out = options.out / "cache"
    out.mkdir(exist_ok=True)
    save_file(tensors, out / "reference.safetensors")
    (out / "reference.safetensors").chmod(0o644)
    write_json(out / "reference.json", facts)


if __name__ == "__main__":
    main()

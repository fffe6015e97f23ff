#!/usr/bin/env python3
"""Makes tests/data/cogvideox/cache: clips of the tiny CogVideoX checkpoints with steps left out.

The pipelines of diffusers, in float32 on the CPU, with the rule of TeaCache around the transformer's
blocks: ali-vilab/TeaCache at 7c10efc, TeaCache4CogVideoX1.5/teacache_sample_video.py. Its time embedding,
distance, polynomial and sum are computed by PyTorch here. reference.safetensors has the final latents of
each case, reference.json its settings and which steps were computed. tests/data/cogvideox/README.md
describes both.

To run it again, with the packages of make_cogvideox_data.py and the checkpoints that it wrote:
    python tools/reference/make_cogvideox_cache_data.py
"""

import numpy
import torch
from safetensors.torch import save_file

import make_cogvideox_data as from_text
import make_cogvideox_media_data as from_media
from cogvideox_kinds import IMAGE_KINDS, KINDS, PROMPTS

STEPS = 12
IDENTITY = [0.0, 0.0, 0.0, 1.0, 0.0]

# threshold and coefficients of TeaCache; or the steps [from, to) of which each `every`-th is computed.
CASES = {
    "sincos": dict(kind="sincos", threshold=1.0, coefficients=IDENTITY),
    "sincos.polynomial": dict(kind="sincos", threshold=1.0, coefficients=[0.05, -0.1, 0.3, 0.4, 0.1]),
    "rotary": dict(kind="rotary", threshold=1.2, coefficients=IDENTITY),
    "v1_5": dict(kind="v1_5", threshold=1.2, coefficients=IDENTITY),
    "v1_5.every": dict(kind="v1_5", every=3, steps=[3, 10], cache="every:3,from:25,to:80"),
    "i2v": dict(kind="i2v", threshold=1.2, coefficients=IDENTITY, image="i2v.resized"),
    "i2v_1_5": dict(kind="i2v_1_5", threshold=0.8, coefficients=IDENTITY, image="i2v_1_5.photo"),
}


class Cached(torch.nn.Module):
    """Takes the place of all blocks. Calls them, or adds what they added in the last call."""

    def __init__(self, blocks, case):
        super().__init__()
        self.blocks, self.case = blocks, case
        self.computed, self.distances = [], []
        self.sum, self.before, self.residual = 0.0, None, None

    def computes(self, emb):
        step, case = len(self.computed), self.case
        if step == 0 or step == STEPS - 1:
            self.sum = 0.0
            return True
        if "every" in case:
            first, end = case["steps"]
            return not first <= step < end or (step - first) % case["every"] == 0
        distance = ((emb - self.before).abs().mean() / self.before.abs().mean()).item()
        self.distances.append(distance)
        self.sum += numpy.poly1d(case["coefficients"])(distance)
        if self.sum < case["threshold"]:
            return False
        self.sum = 0.0
        return True

    def forward(self, hidden_states, encoder_hidden_states, temb, **more):
        computes = self.computes(temb)
        self.before = temb
        self.computed.append(computes)
        if computes:
            video, text = hidden_states, encoder_hidden_states
            for block in self.blocks:
                video, text = block(hidden_states=video, encoder_hidden_states=text, temb=temb, **more)
            self.residual = video - hidden_states, text - encoder_hidden_states
            return video, text
        return hidden_states + self.residual[0], encoder_hidden_states + self.residual[1]


def run(checkpoints, media, case):
    """Final latents [frame, channel, row, column], without padding frames; the Cached."""
    kind = (KINDS | IMAGE_KINDS)[case["kind"]] | {"steps": STEPS}
    folder = checkpoints / case["kind"]
    if "image" in case:
        clip = from_media.CASES[case["image"]]
        pipeline = from_media.load(folder, clip, torch.float32)
        more = dict(image=from_media.load_image(str(media / clip["image"])))
    else:
        clip = kind["clips"][0]
        pipeline, more = from_text.load(folder, torch.float32), {}
    cached = Cached(pipeline.transformer.transformer_blocks, case)
    pipeline.transformer.transformer_blocks = torch.nn.ModuleList([cached])
    latents = pipeline(
        prompt=PROMPTS[clip["prompt"]], negative_prompt=PROMPTS[clip["negative"]], height=kind["height"],
        width=kind["width"], num_frames=kind["num_frames"], num_inference_steps=STEPS,
        guidance_scale=kind["guidance"], use_dynamic_cfg=kind["dynamic"],
        generator=torch.Generator().manual_seed(clip["seed"]), output_type="latent",
        max_sequence_length=kind["max_length"], **more).frames
    padding = latents.shape[1] - ((kind["num_frames"] - 1) // 4 + 1)
    facts = {"prompt": PROMPTS[clip["prompt"]], "negative_prompt": PROMPTS[clip["negative"]],
             "seed": clip["seed"], "frames": kind["num_frames"], "height": kind["height"],
             "width": kind["width"], "steps": STEPS, "guidance": kind["guidance"],
             "dynamic_guidance": kind["dynamic"]}
    if "image" in case:
        facts["image"] = clip["image"]
    return latents[0, padding:], cached, facts


def main():
    from_text.prepare_libraries()
    checkpoints, out = from_text.folders_given(__doc__, "cache")
    tensors, all_facts = {}, {}
    for name, case in CASES.items():
        latents, cached, facts = run(checkpoints, checkpoints / "media", case)
        whole, _, _ = run(checkpoints, checkpoints / "media", case | {"every": 1, "steps": [0, STEPS]})
        change = float((latents - whole).abs().max() / whole.abs().max())
        print(f"{name}: {sum(cached.computed)} of {STEPS} steps computed, distances "
              f"{[round(d, 3) for d in cached.distances]}, change against all steps {change:.3f}")
        assert torch.isfinite(latents).all() and change > 1e-3, name
        tensors[name] = latents.contiguous().clone()
        cache = {"cache": case.get("cache") or f"teacache:{case['threshold']:g}"}
        if "coefficients" in case:
            cache["cache_coefficients"] = ",".join(repr(c) for c in case["coefficients"])
        all_facts[name] = {"kind": case["kind"]} | facts | cache | {"computed": cached.computed}
    save_file(tensors, out / "reference.safetensors")
    (out / "reference.safetensors").chmod(0o644)
    from_text.write_json(out / "reference.json", all_facts)


if __name__ == "__main__":
    main()

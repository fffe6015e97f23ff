#!/usr/bin/env python3
"""Makes tests/data/wan/lora: LoRAs of Wan in the forms that circulate, and the weights with them.

The model is tests/data/wan/float32. Each form is merged by hand in float64, and where diffusers loads it, with
load_lora_weights and fuse_lora: what both change must agree. tests/data/wan/README.md describes the files.

To run it again:
    pip install "torch==2.15.*" "diffusers==0.36.*" "transformers<5" "peft==0.18.*" accelerate safetensors
    python tools/reference/make_wan_lora_data.py                      # into tests/data/wan/lora
    python tools/reference/make_wan_lora_data.py --out /tmp/again
"""
import argparse
import math
from pathlib import Path

import diffusers
import peft
import torch
from safetensors.torch import load_file, save_file

BASE = Path(__file__).parents[2] / "tests/data/wan/float32"
STRENGTH = {"diffusers": 1.0, "causvid": 0.5, "lightx2v": 1.0, "musubi": -0.75, "distilled": 0.5}
RANK = 4
# Wan's own names of the layers of a block, and those of diffusers.
BLOCK = {"self_attn.q": "attn1.to_q", "self_attn.k": "attn1.to_k", "self_attn.v": "attn1.to_v",
         "self_attn.o": "attn1.to_out.0", "cross_attn.q": "attn2.to_q", "cross_attn.k": "attn2.to_k",
         "cross_attn.v": "attn2.to_v", "cross_attn.o": "attn2.to_out.0", "ffn.0": "ffn.net.0.proj", "ffn.2": "ffn.net.2"}
NORMS = {"self_attn.norm_q": "attn1.norm_q", "self_attn.norm_k": "attn1.norm_k", "cross_attn.norm_q": "attn2.norm_q",
         "cross_attn.norm_k": "attn2.norm_k", "norm3": "norm2"}
OTHERS = {"time_projection.1": "condition_embedder.time_proj", "head.head": "proj_out",
          "time_embedding.0": "condition_embedder.time_embedder.linear_1",
          "time_embedding.2": "condition_embedder.time_embedder.linear_2",
          "text_embedding.0": "condition_embedder.text_embedder.linear_1",
          "text_embedding.2": "condition_embedder.text_embedder.linear_2"}


class Maker:
    """Draws a LoRA, and merges it by hand. state: the file; weights: the model's, in float64."""
    def __init__(self, seed, weights, strength):
        self.generator = torch.Generator().manual_seed(seed)
        self.state, self.strength = {}, strength
        self.weights = {name: value.double() for name, value in weights.items()}

    def draw(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def add(self, name, change):
        self.weights[name] += self.strength * change.double()

    def pair(self, key, module, down=".lora_down.weight", up=".lora_up.weight", rank=RANK, alpha=None, dtype=None):
        out, inputs = self.weights[module + ".weight"].shape
        a = (self.draw(rank, inputs) / math.sqrt(inputs)).to(dtype)
        b = (0.3 * self.draw(out, rank)).to(dtype)
        self.state |= {key + down: a, key + up: b}
        if alpha is not None:
            self.state[key + ".alpha"] = torch.tensor(alpha)
        factor = 1 if alpha is None else alpha / rank
        self.add(module + ".weight", factor * (b.double() @ a.double()))

    def difference(self, key, tensor):
        change = 0.1 * self.draw(*self.weights[tensor].shape)
        self.state[key] = change
        self.add(tensor, change)


def blocks(layers):
    for block in (0, 1):
        for original, name in layers.items():
            yield f"blocks.{block}.{original}", f"blocks.{block}.{name}"


def causvid(maker):
    """lora_A, lora_B and differences of biases of all linear layers: 2.1's CausVid."""
    for original, name in [*blocks(BLOCK), *OTHERS.items()]:
        maker.pair("diffusion_model." + original, name, ".lora_A.weight", ".lora_B.weight")
        maker.difference(f"diffusion_model.{original}.diff_b", name + ".bias")


def lightx2v(maker):
    """lora_down, lora_up, alpha, bfloat16, and differences of biases and of norms."""
    for original, name in blocks(BLOCK):
        maker.pair("diffusion_model." + original, name, alpha=2.0, dtype=torch.bfloat16)
        maker.difference(f"diffusion_model.{original}.diff_b", name + ".bias")
    for original, name in blocks(NORMS):
        maker.difference(f"diffusion_model.{original}.diff", name + ".weight")


def musubi(maker):
    for original, name in blocks(BLOCK):
        maker.pair("lora_unet_" + original.replace(".", "_"), name, alpha=3.0)


def distilled(maker):
    """All that LightX2V extracts from a distilled model, without a prefix."""
    for original, name in blocks({"self_attn.q": "attn1.to_q", "ffn.2": "ffn.net.2"}):
        maker.pair(original, name)
    for original, name in blocks({"cross_attn.k": "attn2.to_k", "norm3": "norm2"}):
        maker.difference(original + ".diff", name + ".weight")
        maker.difference(original + ".diff_b", name + ".bias")
    for original, name in [("patch_embedding", "patch_embedding"), ("head.head", "proj_out")]:
        maker.difference(original + ".diff", name + ".weight")
        maker.difference(original + ".diff_b", name + ".bias")
    for block in (0, 1):
        maker.difference(f"blocks.{block}.diff_m", f"blocks.{block}.scale_shift_table")
    maker.difference("head.diff_m", "scale_shift_table")
    maker.difference("time_projection.1.diff_b", "condition_embedder.time_proj.bias")


def of_diffusers(maker, out):
    """As save_lora_weights of diffusers: with ranks and alphas in the metadata."""
    ranks, alphas = {"blocks.1.attn2.to_k": 2}, {"attn1.to_v": 8.0}
    targets = ["to_q", "to_k", "to_v", "to_out.0", "ffn.net.0.proj"]
    for _, name in blocks(BLOCK):
        if not name.endswith(tuple(targets)):
            continue
        rank = ranks.get(name, RANK)
        alpha = next((value for key, value in alphas.items() if name.endswith(key)), 6.0)
        maker.pair(name, name, ".lora_A.weight", ".lora_B.weight", rank, alpha)
        del maker.state[name + ".alpha"]
    config = peft.LoraConfig(r=RANK, lora_alpha=6, target_modules=targets, alpha_pattern=alphas,
                             rank_pattern={f"^{name}": rank for name, rank in ranks.items()})
    diffusers.WanPipeline.save_lora_weights(
        out, maker.state, weight_name="diffusers.safetensors",
        transformer_lora_adapter_metadata=config.to_dict() | {"target_modules": sorted(targets)})


def fused(file, strength):
    transformer = diffusers.WanTransformer3DModel.from_pretrained(BASE / "transformer")
    pipeline = diffusers.WanPipeline(
        tokenizer=None, text_encoder=None, vae=None, scheduler=None, transformer=transformer)
    pipeline.load_lora_weights(str(file.parent), weight_name=file.name, adapter_name="one", low_cpu_mem_usage=False)
    pipeline.set_adapters(["one"], [strength])
    pipeline.fuse_lora(adapter_names=["one"])
    return {name.replace(".base_layer.", "."): value for name, value in transformer.state_dict().items()
            if "lora_" not in name}


def make(name, seed, out):
    weights = load_file(BASE / "transformer/diffusion_pytorch_model.safetensors")
    maker = Maker(seed, weights, STRENGTH[name])
    file = out / f"{name}.safetensors"
    if name == "diffusers":
        of_diffusers(maker, out)
    else:
        {"causvid": causvid, "lightx2v": lightx2v, "musubi": musubi, "distilled": distilled}[name](maker)
        save_file({key: value.contiguous() for key, value in maker.state.items()}, file)
    expected = {key: value.float() for key, value in maker.weights.items()}
    if name != "distilled":  # which diffusers does not load
        errors = [(value - expected[key]).abs().max().item() for key, value in fused(file, STRENGTH[name]).items()
                  if "norm" not in key]  # it leaves out differences of norms
        print(name, f"differs from diffusers by {max(errors):.1e}")
        assert max(errors) < 2e-6
    changed = {key: value for key, value in expected.items() if not torch.equal(value, weights[key])}
    return {f"{name}.rows.{key}": value[::3].contiguous() for key, value in changed.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=BASE.parent / "lora")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    results = {}
    with torch.no_grad():
        for seed, name in enumerate(STRENGTH):
            results |= make(name, 50 + seed, out)
    save_file(results, out / "reference.safetensors")
    for file in out.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    main()

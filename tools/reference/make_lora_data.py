#!/usr/bin/env python3
"""Makes tests/data/lora: LoRAs in the forms in which diffusers and PEFT write them, and the weights
and results of diffusers and PEFT with them.

The model is tests/data/cogvideox/sincos, in float32 on the CPU. tests/data/lora/README.md describes
the files. To run it again:
    pip install "torch==2.15.*" "diffusers==0.42.*" transformers "peft==0.21.*" accelerate \\
        sentencepiece safetensors
    python tools/reference/make_lora_data.py                      # into tests/data/lora
    python tools/reference/make_lora_data.py --out /tmp/again
"""
import argparse
import math
import shutil
from pathlib import Path

import diffusers
import peft
import torch
from safetensors.torch import load_file, save_file

BASE = Path(__file__).parents[2] / "tests/data/cogvideox/sincos"
ATTENTION = ["attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0"]


def pipeline():
    made = diffusers.CogVideoXPipeline.from_pretrained(BASE, torch_dtype=torch.float32)
    made.transformer.eval()
    return made


def modules_of(blocks, names):
    return [f"transformer_blocks.{block}.{name}" for block in blocks for name in names]


def draw(transformer, seed, ranks):
    """A and B of each module of `ranks` (module -> rank), as PEFT names them."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for module, rank in sorted(ranks.items()):
        weight = transformer.get_submodule(module).weight
        out, inputs = weight.shape
        state[f"{module}.lora_A.weight"] = torch.randn(rank, inputs, generator=generator) / math.sqrt(inputs)
        state[f"{module}.lora_B.weight"] = 0.3 * torch.randn(out, rank, generator=generator)
    return state


def write_all(out):
    transformer = pipeline().transformer
    attention = modules_of([0, 1], ATTENTION)

    # As the training scripts of diffusers save them, with the settings in the metadata.
    ranks = dict.fromkeys(attention, 4) | {"transformer_blocks.1.attn1.to_q": 2}
    config = peft.LoraConfig(
        r=4, lora_alpha=6, target_modules=["to_q", "to_k", "to_v", "to_out.0"],
        rank_pattern={"^transformer_blocks.1.attn1.to_q": 2},
        alpha_pattern={"attn1.to_k": 1.5, "transformer_blocks.0.attn1.to_v": 8})
    settings = config.to_dict() | {"target_modules": sorted(config.target_modules)}
    diffusers.CogVideoXPipeline.save_lora_weights(
        out, draw(transformer, 1, ranks), weight_name="metadata.safetensors",
        transformer_lora_adapter_metadata=settings)

    # As they were saved before: alpha is not known, and ranks differ. diffusers 0.36 takes
    # the rank of the first module as alpha of all.
    ranks = {"transformer_blocks.0.attn1.to_out.0": 2, "transformer_blocks.1.attn1.to_k": 4,
             "transformer_blocks.1.ff.net.0.proj": 3, "transformer_blocks.1.norm1.linear": 2,
             "time_embedding.linear_1": 1, "proj_out": 4, "transformer_blocks.0.ff.net.2": 4}
    diffusers.CogVideoXPipeline.save_lora_weights(
        out, draw(transformer, 2, ranks), weight_name="no_metadata.safetensors")

    # Before PEFT: "down" and "up", also in attention processors; in float16.
    state = draw(transformer, 3, dict.fromkeys(attention, 3))
    old, processors = {}, {}
    for name, value in state.items():
        part = "down" if "lora_A" in name else "up"
        module = name.split(".lora_")[0]
        old[f"transformer.{module}.lora.{part}.weight"] = value.half()
        block, projection = module.removesuffix(".0").rsplit(".", 1)
        processors[f"transformer.{block}.processor.{projection}_lora.{part}.weight"] = value
    save_file(old, out / "down_up.safetensors")
    save_file(processors, out / "processors.safetensors")

    # The transformer alone; a convolution, and changed biases.
    ranks = {"patch_embed.proj": 2, "patch_embed.text_proj": 2, "transformer_blocks.0.attn1.to_q": 2}
    config = peft.LoraConfig(r=2, lora_alpha=3, target_modules=list(ranks), lora_bias=True)
    transformer.add_adapter(config)
    draw_into(transformer, 4, ranks)
    transformer.save_lora_adapter(out, weight_name="adapter_alone.safetensors")

    # PEFT, with adapter_config.json; rank-stabilised.
    config = peft.LoraConfig(r=4, lora_alpha=5, use_rslora=True, target_modules=["to_q", "to_v"])
    wrapped = peft.get_peft_model(pipeline().transformer, config)
    draw_into(wrapped, 5, dict.fromkeys(modules_of([0, 1], ["attn1.to_q", "attn1.to_v"]), 4))
    wrapped.save_pretrained(out / "peft")
    (out / "peft/README.md").unlink(missing_ok=True)


def draw_into(model, seed, ranks):
    """Draws the matrices of a model that has adapters already."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        adapters = [(n, p) for n, p in sorted(model.named_parameters()) if "lora_" in n]
        assert len(adapters) >= 2 * len(ranks)
        for name, parameter in adapters:
            inputs = math.prod(parameter.shape[1:])
            scale = 1 / math.sqrt(inputs) if "lora_A" in name else 0.3
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))


def fused(transformer_of):
    """The weights that differ from the base, and one call of the transformer."""
    base = pipeline().transformer.state_dict()
    transformer = transformer_of()
    reference = load_file(BASE / "reference.safetensors")
    with torch.no_grad():
        output = transformer(
            hidden_states=reference["transformer.latents"][:1],
            encoder_hidden_states=reference["text.embeddings"][1:2],
            timestep=reference["transformer.timestep"][:1].long(), return_dict=False)[0]
    state = {name.replace(".base_layer.", "."): value
             for name, value in transformer.state_dict().items() if "lora_" not in name}
    changed = {name: value for name, value in state.items() if not torch.equal(value, base[name])}
    assert set(state) == set(base) and changed
    rows = {f"rows.{name}": value[::3] for name, value in changed.items()}  # every third
    return rows | {"output": output[0]}


def with_pipeline(out, *loras):
    """load_lora_weights, set_adapters and fuse_lora. loras: (file, scale)"""
    def make():
        made = pipeline()
        names = []
        for file, _ in loras:
            names.append(file.partition(".")[0])
            made.load_lora_weights(str(out), weight_name=file, adapter_name=names[-1],
                                   low_cpu_mem_usage=False)
        made.set_adapters(names, [scale for _, scale in loras])
        made.fuse_lora(adapter_names=names)
        return made.transformer
    return make


def alone(out):
    transformer = pipeline().transformer
    # Without weight_name diffusers does not read the metadata.
    transformer.load_lora_adapter(str(out), weight_name="adapter_alone.safetensors", prefix=None)
    transformer.fuse_lora()
    return transformer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=BASE.parents[1] / "lora")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(out / "peft", ignore_errors=True)
    write_all(out)
    results = {}
    for name, make in {
        "metadata": with_pipeline(out, ("metadata.safetensors", 1.0)),
        "no_metadata": with_pipeline(out, ("no_metadata.safetensors", 0.5)),
        "down_up": with_pipeline(out, ("down_up.safetensors", 1.0)),
        "processors": with_pipeline(out, ("processors.safetensors", -1.25)),
        "adapter_alone": lambda: alone(out),
        "peft": lambda: peft.PeftModel.from_pretrained(
            pipeline().transformer, out / "peft").merge_and_unload(),
        "several": with_pipeline(out, ("metadata.safetensors", 0.7), ("no_metadata.safetensors", 1.5),
                                 ("processors.safetensors", -0.4)),
    }.items():
        results |= {f"{name}.{key}": value.contiguous() for key, value in fused(make).items()}
    save_file(results, out / "reference.safetensors")
    for file in out.rglob("*.safetensors"):
        file.chmod(0o644)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/data/opensora/lora: LoRAs of Open-Sora's transformers as PEFT makes and writes them, and their gradients
by Open-Sora's own code.

The cases are those of make_opensora_training_data.py, with the same models, samples, losses and float64, but only the
LoRA of PEFT is trained. v1_0/ and v1_2/ are the LoRAs; reference.safetensors and reference.json have the gradients, as
in tests/data/opensora/training. To run it again, with checkouts and packages as for make_opensora_data.py:
    pip install "peft==0.21.*"
    python tools/reference/make_opensora_lora_data.py --v1-0 open-sora-1.0 --v1-2 open-sora-1.2
"""
import functools
import json
import math

import peft
import torch
from safetensors.torch import save_file

import make_opensora_training_data as training
from make_cogvideox_data import write_json
from make_opensora_data import given_options

# All linear layers of the blocks.
CONFIG = dict(r=4, lora_alpha=6, rank_pattern={"fc1": 7},
              target_modules=r"(spatial_|temporal_)?blocks\..*\.(qkv|proj|q_linear|kv_linear|fc1|fc2)")


def write_lora(model, folder, seed):
    adapted = peft.get_peft_model(model, peft.LoraConfig(**CONFIG))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(adapted.named_parameters()):
            if ".lora_A." in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / math.sqrt(parameter.shape[1]))
            elif ".lora_B." in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink()  # a form to be filled in
    config = folder / "adapter_config.json"
    write_json(config, json.loads(config.read_text()) | {"base_model_name_or_path": None})


def with_lora(folder, model):
    """The model with this LoRA, of which alone gradients are wanted."""
    return peft.PeftModel.from_pretrained(model, folder, is_trainable=True)


def main():
    options = given_options(__doc__)
    releases = {"v1_0": options.v1_0, "v1_2": options.v1_2}
    torch.set_num_threads(1)
    out = options.out / "lora"
    out.mkdir(exist_ok=True)
    file = out / "reference.json"
    stored = json.loads(file.read_text())["gradients"] if file.exists() else {}
    for seed, kind in enumerate(releases, start=800):
        make = dict(v1_0=training.v1_0, v1_2=training.v1_2)[kind]
        write_lora(make(training.GRADIENTS[kind], options.out, releases[kind], torch.float32)[0], out / kind, seed)
    tensors, facts = {}, {"gradients": {}}
    for seed, (name, case) in enumerate(training.GRADIENTS.items(), start=600):
        adapt = functools.partial(with_lora, out / case["kind"])
        results, about = training.gradients(case, options.out, releases, seed,
                                            stored.get(name, {}).get("float32_errors", {}), adapt)
        facts["gradients"][name] = about
        tensors |= {f"gradients.{name}.{key}": value.float() for key, value in results.items()}
        sizes, errors = about["largest"], about["float32_errors"]
        print(f"{name}: loss {about['loss']:.9f}, {len(sizes)} parameters, largest gradients "
              f"{min(sizes.values()):.1e} to {max(sizes.values()):.1e}, relative errors of float32 up to "
              f"{max(errors[key] / sizes[key] for key in sizes):.1e}")
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, out / "reference.safetensors")
    (out / "reference.safetensors").chmod(0o644)
    write_json(file, facts)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/data/wan/training and tests/data/wan/image/training: gradients of all parameters and of a LoRA of Wan's
transformer, and ten steps of training of each, by diffusers' WanTransformer3DModel and PEFT.

The models are the tiny ones in tests/data/wan (make_wan_data.py), computed in float64 from the stored values, but for
the sinusoid of a timestep: its angles are float32, of frequencies that are rounded correctly, which PyTorch's exp of
float32 does not do on all processors. Noise levels are those of diffusers' FlowMatchEulerDiscreteScheduler, drawn
as by train_dreambooth_lora_*.py with the weighting scheme "none"; the loss is the mean of (out - (noise - x))^2.
Models that take an image get it as in WanImageToVideoPipeline: its latents and a mask as further channels, and rows
of the image encoder. It has no noise and is never left out, as in finetrainers.
tests/data/wan/README.md describes the files. To run it again:
    pip install "torch==2.15.*" "diffusers==0.36.*" "transformers<5" "peft==0.21.*" accelerate safetensors
    python tools/reference/make_wan_training_data.py          # or only: texts, images
"""
import argparse
import contextlib
import json
import math
from pathlib import Path

import peft
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel
from diffusers.optimization import get_scheduler
from safetensors.torch import save_file

KEPT_ELEMENTS = 128  # of each gradient, at equal distances
RANK, ALPHA = 4, 6
TARGETS = ["to_q", "to_k", "to_v", "to_out.0", "ffn.net.0.proj", "ffn.net.2"]
IMAGE_TARGETS = ["to_q", "to_v", "add_k_proj", "add_v_proj", "ffn.net.2"]
MASK_CHANNELS, IMAGE_ROWS = 4, 5
# latents: frames, rows, columns; text: rows of embeddings. lora: of a LoRA instead of all parameters.
GRADIENTS = {
    "all": dict(kind="float32", latents=(5, 6, 10), timestep=437.5, text=200),
    "all.odd": dict(kind="bfloat16", latents=(3, 9, 8), timestep=1000.0, text=300),
    "lora": dict(kind="float32", latents=(3, 6, 14), timestep=12.25, text=450, lora=True),
    "lora.odd": dict(kind="bfloat16", latents=(1, 9, 12), timestep=921.5, text=512, lora=True),
}
# flow_shift: in place of that of the folder's scheduler.
STEPS = {
    "all": dict(kind="float32", latents=(3, 6, 10), clip=3.0),
    "lora": dict(kind="float32", latents=(5, 6, 10), clip=0.68, lora=True, flow_shift=3.0),
}
# The same of a model that takes an image.
IMAGE_GRADIENTS = {
    "all": dict(kind="image", latents=(3, 6, 10), timestep=437.5, text=200),
    "lora": dict(kind="image", latents=(3, 6, 8), timestep=62.5, text=30, lora=True),
}
IMAGE_STEPS = {
    "all": dict(kind="image", latents=(2, 6, 8), clip=6.2),
    "lora": dict(kind="image", latents=(3, 6, 8), clip=1.4, lora=True, flow_shift=3.0),
}
TEXTS, EMPTY_TEXT = [11, 4, 20], 1  # rows of embeddings
SETTINGS = dict(steps=10, batch=2, seed=7, learning_rate=1e-3, schedule="cosine", warmup=3, beta1=0.9, beta2=0.95,
                weight_decay=1e-4, epsilon=1e-8, caption_dropout=0.3)
single = torch.Tensor.float


@contextlib.contextmanager
def float_is(conversion):
    """WanTransformer3DModel computes norms and modulation of x.float(), which is to be float64."""
    before, torch.Tensor.float = torch.Tensor.float, conversion
    try:
        yield
    finally:
        torch.Tensor.float = before


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def kept(tensor):
    flat = tensor.detach().flatten()
    return flat[::-(-flat.numel() // KEPT_ELEMENTS)].clone()


def opened(data, kind, dtype):
    model = WanTransformer3DModel.from_pretrained(data / kind / "transformer", torch_dtype=torch.float32).to(dtype)
    half = model.config.freq_dim // 2
    exponents = -math.log(10000) * torch.arange(half, dtype=torch.float32) / half
    frequencies = exponents.double().exp().to(torch.float32)

    def sinusoid(timesteps):
        angles = (timesteps.to(torch.float32)[:, None] * frequencies).double()
        return torch.cat([angles.cos(), angles.sin()], dim=1).to(torch.float32)
    model.condition_embedder.timesteps_proj.forward = sinusoid
    return model


def trained(model):
    """What is trained, by the names that files have."""
    return {name.replace(".default", ""): p for name, p in model.named_parameters() if p.requires_grad}


def lora_settings(model):
    return dict(r=RANK, lora_alpha=ALPHA, rank_pattern={"ffn.net.2": 7},
                target_modules=IMAGE_TARGETS if model.config.image_dim else TARGETS)


def with_lora(model, values):
    """Adds a LoRA with these values."""
    model.requires_grad_(False)
    model.add_adapter(peft.LoraConfig(**lora_settings(model)))
    with torch.no_grad():
        for name, p in sorted(trained(model).items()):
            p.copy_(values[name])
    return model.to(next(model.parameters()).dtype)


def drawn_lora(model, generator):
    """Values of A and of B, which PEFT would make zero."""
    model.requires_grad_(False)
    model.add_adapter(peft.LoraConfig(**lora_settings(model)))
    return {name: 0.1 * torch.randn(p.shape, generator=generator) for name, p in sorted(trained(model).items())}


def model_of(data, case, loras, dtype=torch.float64):
    model = opened(data, case["kind"], dtype)
    return with_lora(model, loras[case["kind"]]) if case.get("lora") else model


def padded(text, dtype):
    """[512, channel], with zeros behind the text"""
    rows = torch.zeros(1, 512, text.shape[1], dtype=dtype)
    rows[0, :len(text)] = text
    return rows


def drawn_image(model, shape, generator):
    """Latents of an image [frame, channel, row, column] and rows of its encoder, of models that take them."""
    if not model.config.image_dim:
        return {}
    return {"image_latents": torch.randn(shape, generator=generator),
            "image_rows": torch.randn(IMAGE_ROWS, model.config.image_dim, generator=generator)}


def call(model, latents, timestep, text, image):
    """latents: [frame, channel, row, column] → likewise"""
    dtype = next(model.parameters()).dtype
    rows = {}
    if image:
        mask = torch.zeros(len(latents), MASK_CHANNELS, *latents.shape[2:])
        mask[0] = 1
        latents = torch.cat([latents, mask, image["image_latents"]], dim=1)
        rows = {"encoder_hidden_states_image": image["image_rows"][None].to(dtype)}
    with float_is(torch.Tensor.double if dtype == torch.float64 else single):
        out = model(latents.transpose(0, 1)[None].to(dtype), timestep, padded(text, dtype), return_dict=False, **rows)[0]
    return out[0].transpose(0, 1)


def loss_of(out, target):
    return (out.double() - target.double()).pow(2).mean()


def largest(tensor):
    return tensor.abs().max().item()


def norm_of(parameters):
    return torch.stack([p.grad.double().pow(2).sum() for p in parameters.values()]).sum().sqrt().item()


def gradients(data, loras, case, seed):
    """Tensors and figures of a case."""
    model = model_of(data, case, loras)
    channels, text_channels = model.config.out_channels, model.config.text_dim
    generator = torch.Generator().manual_seed(seed)
    frames, rows, columns = case["latents"]
    clean, noise = (torch.randn(frames, channels, rows, columns, generator=generator) for _ in range(2))
    text = torch.randn(case["text"], text_channels, generator=generator)
    sigma = case["timestep"] / 1000
    image = drawn_image(model, clean.shape, generator)
    tensors = {"latents": (1 - sigma) * clean + sigma * noise, "target": noise - clean, "text": text} | image
    found = {}
    for dtype in (torch.float64, torch.float32):
        model = model_of(data, case, loras, dtype)
        timestep = torch.tensor([case["timestep"]], dtype=torch.float32)
        loss = loss_of(call(model, tensors["latents"], timestep, text, image), tensors["target"])
        loss.backward()
        found[dtype] = loss.item(), {name: p.grad for name, p in trained(model).items()}
    loss, exact = found[torch.float64]
    assert all(largest(gradient) > 0 for gradient in exact.values())
    errors = {name: largest(found[torch.float32][1][name] - gradient) / largest(gradient)
              for name, gradient in exact.items()}
    sizes = {name: largest(gradient) for name, gradient in exact.items()}
    print(f"{case}: loss {loss:.9f}, {len(sizes)} tensors, largest gradients {min(sizes.values()):.1e} to "
          f"{max(sizes.values()):.1e}, relative errors of float32 up to {max(errors.values()):.1e} "
          f"({max(errors, key=errors.get)})")
    facts = {"kind": case["kind"], "timestep": case["timestep"], "loss": loss}
    if case.get("lora"):
        facts["lora"] = f"{case['kind']}_lora.safetensors"
        return tensors | {f"gradient.{name}": gradient for name, gradient in exact.items()}, facts
    return (tensors | {f"gradient.{name}": kept(gradient) for name, gradient in exact.items()},
            facts | {"largest": sizes})


def drawn_sample(scheduler, mean, std, number):
    """Sample `number` of the run: which of the data, latents, noise, timestep, noise level, whether the caption is
    dropped."""
    epoch, place = divmod(number, len(TEXTS))
    order = torch.randperm(len(TEXTS), generator=torch.Generator().manual_seed(SETTINGS["seed"] + epoch))
    which = int(order[place])
    generator = torch.Generator().manual_seed(SETTINGS["seed"] + number)
    index = torch.randint(0, scheduler.config.num_train_timesteps, (1,), generator=generator)
    dropped = bool(torch.rand(1, generator=generator) < SETTINGS["caption_dropout"])
    posterior = torch.randn(mean[which].shape, generator=generator)
    noise = torch.randn(mean[which].shape, generator=generator)
    return (which, mean[which] + std[which] * posterior, noise, scheduler.timesteps[index], scheduler.sigmas[index],
            dropped)


def train(data, loras, case, seed):
    """Tensors and figures of ten steps."""
    model = model_of(data, case, loras)
    folder = "float32" if case["kind"] == "image" else case["kind"]
    folder_shift = json.loads((data / folder / "scheduler/scheduler_config.json").read_text())["flow_shift"]
    scheduler = FlowMatchEulerDiscreteScheduler(shift=case.get("flow_shift", folder_shift))
    generator = torch.Generator().manual_seed(seed)
    frames, rows, columns = case["latents"]
    shape = (len(TEXTS), frames, model.config.out_channels, rows, columns)
    mean = torch.randn(shape, generator=generator)
    std = torch.exp(-4.0 + 0.8 * torch.randn(shape, generator=generator))
    texts = [torch.randn(count, model.config.text_dim, generator=generator) for count in [*TEXTS, EMPTY_TEXT]]
    images = [drawn_image(model, shape[1:], generator) for _ in TEXTS]

    def loss_at(clean, noise, timestep, sigma, text, image):
        x = (1 - sigma) * clean + sigma * noise
        return loss_of(call(model, x, timestep, text, image), noise - clean)

    def validation():
        losses = []
        for quarter in range(4):
            timestep, of_clips = torch.tensor([125.0 + 250 * quarter]), []
            for clip in range(len(TEXTS)):
                own = torch.Generator().manual_seed(SETTINGS["seed"] + 2**31 + 4 * clip + quarter)
                noise = torch.randn(mean[clip].shape, generator=own)
                with torch.no_grad():
                    loss = loss_at(mean[clip], noise, timestep, timestep / 1000, texts[clip], images[clip])
                    of_clips.append(loss.item())
            losses.append(sum(of_clips) / len(of_clips))
        return losses

    parameters = trained(model)
    start = {name: p.detach().clone() for name, p in parameters.items()}
    optimizer = torch.optim.AdamW(
        parameters.values(), lr=SETTINGS["learning_rate"], betas=(SETTINGS["beta1"], SETTINGS["beta2"]),
        eps=SETTINGS["epsilon"], weight_decay=SETTINGS["weight_decay"], foreach=False)
    rates = get_scheduler(SETTINGS["schedule"], optimizer, num_warmup_steps=SETTINGS["warmup"],
                          num_training_steps=SETTINGS["steps"])
    done, validated = [], [validation()]
    for step in range(SETTINGS["steps"]):
        samples = [drawn_sample(scheduler, mean, std, step * SETTINGS["batch"] + place)
                   for place in range(SETTINGS["batch"])]
        losses = torch.stack([
            loss_at(clean, noise, timestep, sigma, texts[len(TEXTS) if dropped else which], images[which])
            for which, clean, noise, timestep, sigma, dropped in samples])
        losses.mean().backward()
        norm = norm_of(parameters)
        torch.nn.utils.clip_grad_norm_(parameters.values(), case["clip"])
        done.append({
            "samples": [s[0] for s in samples], "timesteps": [s[3].item() for s in samples],
            "dropped": [s[5] for s in samples], "loss": losses.mean().item(), "sample_losses": losses.tolist(),
            "gradient_norm": norm, "learning_rate": rates.get_last_lr()[0]})
        print(f"{case}: loss {done[-1]['loss']:.9f}, gradient norm {norm:.4f}, timesteps {done[-1]['timesteps']}, "
              f"dropped {done[-1]['dropped']}")
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
    norms = [row["gradient_norm"] for row in done]
    assert min(norms) < case["clip"] < max(norms), norms
    validated.append(validation())
    tensors = {"latent_mean": mean, "latent_std": std}
    tensors |= {f"text.{index}": text for index, text in enumerate(texts)}
    tensors |= {name: torch.stack([image[name] for image in images]) for name in images[0]}
    facts = {"kind": case["kind"], "clip": case["clip"], **SETTINGS, "steps_done": done, "validation": validated}
    if "flow_shift" in case:
        facts["flow_shift"] = case["flow_shift"]
    if case.get("lora"):
        facts["lora"] = f"{case['kind']}_lora.safetensors"
        return tensors | {f"final.{name}": p.detach() for name, p in parameters.items()}, facts
    tensors |= {f"change.{name}": kept(p.detach() - start[name]) for name, p in parameters.items()}
    facts["largest_change"] = max(largest(p.detach() - start[name]) for name, p in parameters.items())
    return tensors, facts


def make(data, out, kinds, gradient_cases, step_cases, seed):
    """Writes the results of some cases, and LoRAs of the models."""
    out.mkdir(exist_ok=True)
    loras = {}
    for place, kind in enumerate(kinds):
        model = opened(data, kind, torch.float32)
        loras[kind] = drawn_lora(model, torch.Generator().manual_seed(seed + place))
        lora = lora_settings(model)
        settings = peft.LoraConfig(**lora).to_dict() | {"target_modules": sorted(lora["target_modules"])}
        WanPipeline.save_lora_weights(out, transformer_lora_layers=loras[kind],
                                      weight_name=f"{kind}_lora.safetensors",
                                      transformer_lora_adapter_metadata=settings)
    tensors, facts = {}, {"gradients": {}, "steps": {}}
    for part, compute, cases, first in (("gradients", gradients, gradient_cases, seed + 10),
                                        ("steps", train, step_cases, seed + 20)):
        for place, (name, case) in enumerate(cases.items()):
            results, facts[part][name] = compute(data, loras, case, first + place)
            tensors |= {f"{part}.{name}.{key}": value.float() for key, value in results.items()}
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, out / "reference.safetensors")
    for file in out.glob("*.safetensors"):
        file.chmod(0o644)
    write_json(out / "reference.json", facts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", choices=["texts", "images"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "tests" / "data" / "wan")
    arguments = parser.parse_args()
    data = arguments.out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if arguments.only != "images":
        make(data, data / "training", ("float32", "bfloat16"), GRADIENTS, STEPS, 800)
    if arguments.only != "texts":
        make(data, data / "image" / "training", ("image",), IMAGE_GRADIENTS, IMAGE_STEPS, 900)


if __name__ == "__main__":
    main()

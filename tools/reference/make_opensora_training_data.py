#!/usr/bin/env python3
"""Makes tests/data/opensora/training: gradients of all parameters of Open-Sora's transformers, and ten steps of
training, by Open-Sora's own code.

The models are the tiny checkpoints in tests/data/opensora (make_opensora_data.py); losses are training_losses() of the
released schedulers. All is computed in float64 from float32 values, as far as the released code lets it: its tables
are rounded to float32 when used, which near timestep 0 leaves few digits of the variational bound, so this rounding is
left out. reference.json also has the largest errors that the same code has in float32 with any of PyTorch's instruction
sets: they differ by a factor of 3. Sets that this CPU lacks keep the errors that are in the file. To run it again, with checkouts and packages as for make_opensora_data.py:
    python tools/reference/make_opensora_training_data.py --v1-0 open-sora-1.0 --v1-2 open-sora-1.2
"""
import concurrent.futures
import json
import multiprocessing
import os

import torch
from diffusers.optimization import get_scheduler
from safetensors.torch import load_file, save_file

import opensora_release
from make_cogvideox_data import write_json
from make_opensora_data import given_options
from opensora_checkpoints import weights_of
from opensora_kinds import KINDS

KEPT_ELEMENTS = 128  # of each gradient, at equal distances
# latents: frames, rows, columns. text: row of the kind's text.embeddings.
GRADIENTS = {
    "v1_0": dict(kind="v1_0", latents=(16, 14, 10), timestep=601, text=1),
    "v1_0.odd": dict(kind="v1_0", latents=(15, 6, 10), timestep=37, text=3, dropped=True),
    "v1_0.first": dict(kind="v1_0", latents=(4, 6, 10), timestep=0, text=0),  # a likelihood is its bound
    "v1_2": dict(kind="v1_2", latents=(15, 13, 9), timestep=731.25, text=1, height=104, width=72, frames=51, fps=24),
    "v1_2.odd": dict(kind="v1_2", latents=(5, 8, 11), timestep=12.5, text=3, dropped=True, height=64, width=88,
                     frames=17, fps=8),
}


# latents: frames, rows, columns. texts: rows of the kind's text.embeddings, of each sample.
STEPS = {
    "v1_0": dict(kind="v1_0", latents=(16, 6, 10), height=48, width=80, frames=16, fps=12, clip=0.68),
    "v1_2": dict(kind="v1_2", latents=(5, 8, 11), height=64, width=88, frames=17, fps=24, clip=1.1),
}
TEXTS = [0, 1, 3]
SETTINGS = dict(steps=10, batch=2, seed=7, learning_rate=1e-3, schedule="cosine", warmup=3, beta1=0.9, beta2=0.95,
                weight_decay=1e-4, epsilon=1e-8, caption_dropout=0.3)
SCALING_FACTOR = {"v1_0": 0.18215, "v1_2": 1.0}  # 1.2's autoencoder normalises latents itself


def kept(tensor):
    flat = tensor.detach().flatten()
    return flat[::-(-flat.numel() // KEPT_ELEMENTS)].clone()


def exact_tables(gaussian_diffusion):
    """Lets the tables of a schedule be float64, without the released code's rounding."""
    def extract(table, timesteps, shape):
        values = torch.from_numpy(table)[timesteps]
        return values.view(-1, *[1] * (len(shape) - 1)).expand(shape)
    gaussian_diffusion._extract_into_tensor = extract


def v1_0(case, data, release, dtype):
    stdit, iddpm, diffusion = opensora_release.load(
        release, ["models.stdit.stdit", "schedulers.iddpm", "schedulers.iddpm.gaussian_diffusion"])
    exact_tables(diffusion)
    kind = KINDS["v1_0"]
    model = stdit.STDiT(**{**kind["transformer"], "input_size": list(case["latents"])}).eval()
    tables = {"pos_embed", "pos_embed_temporal"}
    tensors = {k: v for k, v in weights_of(data / "v1_0" / "transformer").items() if k not in tables}
    model.load_state_dict(tensors, strict=False)
    model.dtype = dtype
    return model.to(dtype), iddpm.IDDPM(timestep_respacing=""), {}


def v1_2(case, data, release, dtype):
    stdit, rf = opensora_release.load(release, ["models.stdit.stdit3", "schedulers.rf"])
    model = stdit.STDiT3(stdit.STDiT3Config(**KINDS["v1_2"]["transformer"])).eval()
    model.load_state_dict(weights_of(data / "v1_2" / "transformer"))
    pixels = {name: torch.tensor([float(case[key])], dtype=dtype)
              for name, key in dict(height="height", width="width", num_frames="frames", fps="fps").items()}
    return model.to(dtype), rf.RFLOW().scheduler, pixels


def backward(case, data, releases, seed, dtype, adapt=None):
    """Loss, gradients by names, and tensors of the sample. adapt: changes the model first."""
    kind = case["kind"]
    model, scheduler, pixels = dict(v1_0=v1_0, v1_2=v1_2)[kind](case, data, releases[kind], dtype)
    if adapt:
        adapt(model).to(dtype)
    stored = load_file(data / kind / "reference.safetensors")
    text = stored["text.embeddings"][case["text"]]
    if case.get("dropped"):
        text = model.y_embedder.y_embedding
    shape = (1, 4, *case["latents"])
    generator = torch.Generator().manual_seed(seed)
    clean, noise = (torch.randn(shape, generator=generator) for _ in range(2))
    timestep = torch.tensor([case["timestep"]])
    inputs = {}

    def call(x, t, **given):
        inputs["latents"] = x
        return model(x, t, **given)

    given = dict(y=text[None, None].to(dtype), mask=stored["text.mask"][case["text"]][None].long())
    if kind == "v1_0":
        terms = scheduler.training_losses(call, clean.to(dtype), timestep, given, noise.to(dtype))
    else:
        terms = scheduler.training_losses(call, clean.to(dtype), given | pixels, noise.to(dtype), t=timestep)
    loss = terms["loss"].mean()
    loss.backward()
    found = {k.replace(".default", ""): p.grad for k, p in model.named_parameters() if p.requires_grad}
    target = noise if kind == "v1_0" else clean - noise
    return loss.item(), found, {"latents": inputs["latents"][0], "target": target[0], "clean": clean[0]}


def largest(tensor):
    return tensor.abs().max().item()


def rounded_gradients(case, data, releases, seed, adapt):
    torch.set_num_threads(1)
    return backward(case, data, releases, seed, torch.float32, adapt)[1]


def float32_errors(exact, stored, *call):
    """The largest error of each gradient in float32, with each instruction set, beside those in `stored`."""
    errors = dict(stored)
    best = torch.backends.cpu.get_cpu_capability().lower()
    sets = ["default", "avx2", "avx512"]
    for capability in sets[:sets.index(best) + 1]:
        os.environ["ATEN_CPU_CAPABILITY"] = capability  # read when a process begins to use PyTorch
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            rounded = pool.submit(rounded_gradients, *call).result()
        for name, gradient in exact.items():
            errors[name] = max(errors.get(name, 0), largest(rounded[name].double() - gradient))
    return errors


def gradients(case, data, releases, seed, stored, adapt=None):
    """Tensors and figures of a case. stored: its float32_errors in the file."""
    call = (case, data, releases, seed, adapt)
    loss, exact, tensors = backward(case, data, releases, seed, torch.float64, adapt)
    tensors |= {f"gradient.{name}": kept(gradient) for name, gradient in exact.items()}
    facts = {"kind": case["kind"], "timestep": case["timestep"], "text": case["text"],
             "dropped": case.get("dropped", False), "loss": loss,
             "largest": {name: largest(gradient) for name, gradient in exact.items()},
             "float32_errors": float32_errors(exact, stored, *call)}
    facts |= {key: case[key] for key in ("height", "width", "frames", "fps") if key in case}
    return tensors, facts


def shifted(part, case):
    """Times of a flow, as RFLOW's timestep_transform changes them, in float32."""
    pixels, frames = torch.tensor(case["height"] * case["width"] / 512**2), torch.tensor(case["frames"] // 17 * 5.0)
    ratio = pixels.sqrt() * frames.sqrt()
    return ratio * part / (1 + (ratio - 1) * part)


def drawn_sample(case, mean, std, number):
    """Sample `number` of the run: which of the data, scaled latents, noise, timestep, whether the caption is dropped."""
    epoch, place = divmod(number, len(TEXTS))
    order = torch.randperm(len(TEXTS), generator=torch.Generator().manual_seed(SETTINGS["seed"] + epoch))
    which = int(order[place])
    generator = torch.Generator().manual_seed(SETTINGS["seed"] + number)
    if case["kind"] == "v1_0":
        timestep = torch.randint(0, 1000, (1,), generator=generator)
    else:
        timestep = shifted(torch.sigmoid(torch.randn(1, generator=generator)), case) * 1000
    dropped = bool(torch.rand(1, generator=generator) < SETTINGS["caption_dropout"])
    posterior = torch.randn(mean[which].shape, generator=generator)
    noise = torch.randn(mean[which].shape, generator=generator)
    clean = (mean[which] + std[which] * posterior) * SCALING_FACTOR[case["kind"]]
    return which, clean, noise, timestep, dropped


def train(case, data, releases, seed):
    """Tensors and figures of ten steps."""
    kind = case["kind"]
    model, scheduler, pixels = dict(v1_0=v1_0, v1_2=v1_2)[kind](case, data, releases[kind], torch.float64)
    stored = load_file(data / kind / "reference.safetensors")
    generator = torch.Generator().manual_seed(seed)
    frames, rows, columns = case["latents"]
    shape = (len(TEXTS), frames, 4, rows, columns)
    mean = torch.randn(shape, generator=generator) / SCALING_FACTOR[kind]
    std = torch.exp(-4.0 + 0.8 * torch.randn(shape, generator=generator))

    def loss_of(which, clean, noise, timestep, dropped):
        text = model.y_embedder.y_embedding if dropped else stored["text.embeddings"][TEXTS[which]]
        given = dict(y=text[None, None].double(), mask=stored["text.mask"][TEXTS[which]][None].long())
        clean, noise = (x.double().transpose(0, 1)[None] for x in (clean, noise))
        if kind == "v1_0":
            return scheduler.training_losses(model, clean, timestep, given, noise)["loss"].mean()
        return scheduler.training_losses(model, clean, given | pixels, noise, t=timestep)["loss"].mean()

    def validation():
        losses = []
        for quarter in range(4):
            timestep, of_clips = torch.tensor([125 + 250 * quarter]), []
            for clip in range(len(TEXTS)):
                own = torch.Generator().manual_seed(SETTINGS["seed"] + 2**31 + 4 * clip + quarter)
                noise = torch.randn(mean[clip].shape, generator=own)
                with torch.no_grad():
                    of_clips.append(
                        loss_of(clip, mean[clip] * SCALING_FACTOR[kind], noise, timestep, False).item())
            losses.append(sum(of_clips) / len(of_clips))
        return losses

    parameters = {k: p for k, p in model.named_parameters() if p.requires_grad}
    start = {name: p.detach().clone() for name, p in parameters.items()}
    optimizer = torch.optim.AdamW(
        parameters.values(), lr=SETTINGS["learning_rate"], betas=(SETTINGS["beta1"], SETTINGS["beta2"]),
        eps=SETTINGS["epsilon"], weight_decay=SETTINGS["weight_decay"], foreach=False)
    rates = get_scheduler(SETTINGS["schedule"], optimizer, num_warmup_steps=SETTINGS["warmup"],
                          num_training_steps=SETTINGS["steps"])
    rows_of_steps, validated = [], [validation()]
    for step in range(SETTINGS["steps"]):
        samples = [drawn_sample(case, mean, std, step * SETTINGS["batch"] + place)
                   for place in range(SETTINGS["batch"])]
        losses = torch.stack([loss_of(*sample) for sample in samples])
        losses.mean().backward()
        norm = torch.stack([p.grad.pow(2).sum() for p in parameters.values()]).sum().sqrt().item()
        torch.nn.utils.clip_grad_norm_(parameters.values(), case["clip"])
        rows_of_steps.append({
            "samples": [s[0] for s in samples], "timesteps": [s[3].item() for s in samples],
            "dropped": [s[4] for s in samples], "loss": losses.mean().item(), "sample_losses": losses.tolist(),
            "gradient_norm": norm, "learning_rate": rates.get_last_lr()[0]})
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
    validated.append(validation())
    tensors = {"latent_mean": mean, "latent_std": std}
    tensors |= {f"change.{name}": kept(p.detach() - start[name]) for name, p in parameters.items()}
    change = max(float((p.detach() - start[name]).abs().max()) for name, p in parameters.items())
    facts = {key: case[key] for key in ("kind", "height", "width", "frames", "fps", "clip")}
    return tensors, facts | SETTINGS | {"texts": TEXTS, "steps_done": rows_of_steps, "validation": validated,
                                        "largest_change": change}


def main():
    options = given_options(__doc__)
    releases = {"v1_0": options.v1_0, "v1_2": options.v1_2}
    torch.set_num_threads(1)
    tensors, facts = {}, {"gradients": {}, "steps": {}}
    file = options.out / "training" / "reference.json"
    stored = json.loads(file.read_text())["gradients"] if file.exists() else {}
    for seed, (name, case) in enumerate(GRADIENTS.items(), start=600):
        results, about = gradients(case, options.out, releases, seed, stored.get(name, {}).get("float32_errors", {}))
        facts["gradients"][name] = about
        tensors |= {f"gradients.{name}.{key}": value.float() for key, value in results.items()}
        sizes, errors = about["largest"], about["float32_errors"]
        print(f"{name}: loss {about['loss']:.9f}, {len(sizes)} parameters, largest gradients "
              f"{min(sizes.values()):.1e} to {max(sizes.values()):.1e}, relative errors of float32 up to "
              f"{max(errors[key] / sizes[key] for key in sizes):.1e}")
    for seed, (name, case) in enumerate(STEPS.items(), start=700):
        results, about = train(case, options.out, releases, seed)
        facts["steps"][name] = about
        tensors |= {f"steps.{name}.{key}": value.float() for key, value in results.items()}
        for row in about["steps_done"]:
            print(f"{name}: loss {row['loss']:.9f}, gradient norm {row['gradient_norm']:.4f}, timesteps "
                  f"{row['timesteps']}, dropped {row['dropped']}")
        norms = [row["gradient_norm"] for row in about["steps_done"]]
        assert min(norms) < case["clip"] < max(norms), norms
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
    out = options.out / "training"
    out.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, out / "reference.safetensors")
    (out / "reference.safetensors").chmod(0o644)
    write_json(out / "reference.json", facts)


if __name__ == "__main__":
    main()

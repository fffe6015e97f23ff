#!/usr/bin/env python3
"""Makes tests/data/cogvideox/training: gradients of LoRAs and of all parameters, and ten steps of training
of each, by PyTorch.

The transformers are those of the tiny checkpoints in tests/data/cogvideox (make_cogvideox_data.py), in
float32 on the CPU; the LoRAs are adapters that diffusers makes with PEFT. tests/data/cogvideox/README.md
describes the files. To run it again:
    pip install "torch==2.15.*" "diffusers==0.36.*" "transformers<5" "peft==0.21.*" accelerate \\
        sentencepiece safetensors
    python tools/reference/make_training_data.py                  # into tests/data/cogvideox/training

The loss is the mean of (out - v)^2. For the ten steps it also prints, and compares with, the loss of
diffusers' examples/cogvideo/train_cogvideox_lora.py: the mean of w (x0 - x)^2 with w = 1 / (1 - alpha) and
the predicted latents x, which is the same number. Of models that make videos from images the image is the first
frame with noise, as in train_cogvideox_image_to_video_lora.py, with latents as CogVideoXImageToVideoPipeline makes
them.
"""
import numpy
import peft
import torch
from diffusers import CogVideoXPipeline
from diffusers.optimization import get_scheduler
from peft.utils.other import get_pattern_key
from safetensors.torch import load_file, save_file

from cogvideox_kinds import IMAGE_KINDS
from make_cogvideox_data import folders_given, load, prepare_libraries, write_json
from make_lora_data import draw

RANK, ALPHA = 4, 6  # of modules that no pattern names
ATTENTION = ["to_q", "to_k", "to_v", "to_out.0"]
LORAS = {  # name: kind and targets
    "sincos": ("sincos", ATTENTION),
    "rotary": ("rotary", ATTENTION),
    "rotary_ff": ("rotary", [*ATTENTION, "ff.net.0.proj", "ff.net.2"]),
    "v1_5": ("v1_5", ATTENTION),
    "patterns": ("sincos", ["to_q", "to_k", "to_v", "ff.net.2"]),
    "i2v": ("i2v", ATTENTION),
    "i2v_1_5": ("i2v_1_5", ATTENTION),
}
# Of LoRAs whose modules have unlike ranks and alphas: settings of PEFT's LoraConfig.
PATTERNS = {
    "patterns": dict(rank_pattern={"to_k": 2, "transformer_blocks.0.attn1.to_v": 7, "ff.net.2": 6},
                     alpha_pattern={"attn1.to_q": 2.5, "transformer_blocks.0.attn1.to_v": 3.5, "ff.net.2": 1.5}),
}
# Of one sample each. latents: frames with padding, rows, columns; text: row of the kind's text.embeddings.
GRADIENTS = {
    "sincos": dict(lora="sincos", latents=(3, 14, 10), timestep=601, text=1),
    "sincos.odd": dict(lora="sincos", latents=(5, 6, 10), timestep=37, text=3),
    "rotary": dict(lora="rotary", latents=(4, 14, 6), timestep=601, text=1),
    "rotary.odd": dict(lora="rotary", latents=(3, 10, 18), timestep=999, text=3),
    "rotary_ff": dict(lora="rotary_ff", latents=(3, 10, 6), timestep=250, text=2),
    "v1_5": dict(lora="v1_5", latents=(6, 10, 6), timestep=601, text=1),
    "v1_5.odd": dict(lora="v1_5", latents=(2, 6, 14), timestep=37, text=3),
    "patterns": dict(lora="patterns", latents=(3, 6, 10), timestep=601, text=2),
    "i2v": dict(lora="i2v", latents=(3, 14, 10), timestep=601, text=1),
    "i2v_1_5": dict(lora="i2v_1_5", latents=(6, 10, 6), timestep=601, text=1),
}
# latents: frames without padding, rows, columns.
TEN_STEPS = {
    "sincos": dict(lora="sincos", latents=(5, 6, 10)),
    "rotary": dict(lora="rotary", latents=(3, 10, 6)),
    "v1_5": dict(lora="v1_5", latents=(3, 6, 10)),
    "patterns": dict(lora="patterns", latents=(3, 6, 10), dropout=0.25),
    "i2v": dict(lora="i2v", latents=(3, 14, 10)),
    "i2v_1_5": dict(lora="i2v_1_5", latents=(3, 6, 10)),
}
SAMPLES, TEXTS, EMPTY_TEXT = 3, [1, 2, 3], 0
SETTINGS = dict(steps=10, batch=2, seed=7, learning_rate=1e-3, schedule="cosine", warmup=3, beta1=0.9, beta2=0.95,
                weight_decay=1e-4, epsilon=1e-8, clip=0.35, caption_dropout=0.3)  # some norms are larger
IMAGE_DROPOUT = 0.3


# The same of all parameters. Of each tensor only so many elements are kept, at equal distances.
KEPT_ELEMENTS = 256
ALL_GRADIENTS = {
    "sincos": dict(kind="sincos", latents=(3, 14, 10), timestep=601, text=1),
    "rotary": dict(kind="rotary", latents=(3, 10, 18), timestep=999, text=3),
    "v1_5": dict(kind="v1_5", latents=(6, 10, 6), timestep=37, text=2),
    "i2v": dict(kind="i2v", latents=(3, 14, 10), timestep=250, text=3),
    "i2v_1_5": dict(kind="i2v_1_5", latents=(4, 6, 14), timestep=601, text=1),
}
ALL_STEPS = {
    "sincos": dict(kind="sincos", latents=(5, 6, 10)),
    "rotary": dict(kind="rotary", latents=(3, 10, 6)),
    "v1_5": dict(kind="v1_5", latents=(3, 6, 10)),
    "i2v": dict(kind="i2v", latents=(3, 14, 10)),
    "i2v_1_5": dict(kind="i2v_1_5", latents=(3, 6, 10)),
}


def config_of(name):
    return peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=LORAS[name][1], **PATTERNS.get(name, {}))


GOLDEN = 0x9e3779b97f4a7c15


def mixed(x):
    """SplitMix64's output for states x, an array of uint64."""
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
    return x ^ (x >> numpy.uint64(31))


def random_key(name, seed):
    key = mixed(numpy.array([seed + GOLDEN], numpy.uint64))
    for byte in name.encode():
        key = mixed(key + numpy.uint64(GOLDEN + byte))
    return key


class Dropout(torch.nn.Module):
    """PEFT's dropout of a module, with the random numbers of lib/train/README.md."""

    samples = None  # of the batch: their numbers in the run; None: nothing is dropped

    def __init__(self, name, probability):
        super().__init__()
        self.name, self.probability = name, probability

    def mask(self, sample, shape):
        places = numpy.arange(shape.numel(), dtype=numpy.uint64)
        key = random_key(self.name + ".dropout", SETTINGS["seed"] + sample)
        numbers = mixed(key + places * numpy.uint64(GOLDEN)) >> numpy.uint64(32)
        kept = numbers >= numpy.uint64(int(self.probability * 2**32))
        return torch.from_numpy(kept).reshape(shape) / (1 - self.probability)

    def forward(self, x):  # [sample, token, channel]
        if Dropout.samples is None:
            return x
        return x * torch.stack([self.mask(sample, x.shape[1:]) for sample in Dropout.samples])


def with_lora(checkpoints, name, loras, dropout):
    """The pipeline of the kind, its transformer with this LoRA, of which alone gradients are wanted."""
    kind, _ = LORAS[name]
    pipeline = load(checkpoints / kind, torch.float32)
    pipeline.transformer.requires_grad_(False)
    pipeline.transformer.add_adapter(config_of(name))
    for module_name, module in pipeline.transformer.named_modules():
        if dropout and isinstance(module, peft.tuners.lora.LoraLayer):
            module.lora_dropout["default"] = Dropout(module_name, dropout)
    parameters = trained(pipeline.transformer)
    assert set(parameters) == set(loras[name])
    with torch.no_grad():
        for key, parameter in parameters.items():
            parameter.copy_(loras[name][key])
    return pipeline, parameters


def with_all_weights(checkpoints, kind):
    """The pipeline of the kind, and all parameters of its transformer, which are trained."""
    pipeline = load(checkpoints / kind, torch.float32)
    pipeline.transformer.requires_grad_(True)
    return pipeline, dict(pipeline.transformer.named_parameters())


def pipeline_of(checkpoints, case, loras):
    """→ pipeline, parameters that are trained, kind"""
    if "kind" in case:
        return *with_all_weights(checkpoints, case["kind"]), case["kind"]
    return *with_lora(checkpoints, case["lora"], loras, case.get("dropout", 0)), LORAS[case["lora"]][0]


def kept(tensor):
    """Some elements of a tensor, at equal distances from the first."""
    flat = tensor.detach().flatten()
    return flat[::-(-flat.numel() // KEPT_ELEMENTS)].clone()


def trained(transformer):
    """Parameters of the adapter by the names that files have: MODULE.lora_A.weight, MODULE.lora_B.weight."""
    return {name.replace(".default", ""): p for name, p in transformer.named_parameters() if p.requires_grad}


def drawn_lora(transformer, lora, seed):
    targets, ranks = LORAS[lora][1], PATTERNS.get(lora, {}).get("rank_pattern", {})
    modules = [name for name, module in transformer.named_modules()
               if isinstance(module, torch.nn.Linear) and name.startswith("transformer_blocks.")
               and any(name.endswith("." + target) for target in targets)]
    return draw(transformer, seed, {module: ranks.get(get_pattern_key(ranks, module), RANK) for module in modules})


def takes_image(pipeline):
    return pipeline.transformer.config.in_channels > pipeline.transformer.config.out_channels


def call(pipeline, x, text, timesteps, image=None):
    """x, image: [sample, frame, channel, row, column]"""
    config, more = pipeline.transformer.config, {}
    if config.use_rotary_positional_embeddings:
        more["image_rotary_emb"] = pipeline._prepare_rotary_positional_embeddings(
            8 * x.shape[3], 8 * x.shape[4], x.shape[1], "cpu")
    if image is not None:
        x = torch.cat([x, image], dim=2)
    if config.ofs_embed_dim:
        more["ofs"] = torch.full((1,), 2.0)
    return pipeline.transformer(x, text, timesteps, return_dict=False, **more)[0]


def losses_of(out, v):
    """float64, of each sample"""
    return (out.double() - v.double()).pow(2).flatten(1).mean(1)


def norm_of(parameters):
    """Norm of all gradients together."""
    return torch.stack([p.grad.double().pow(2).sum() for p in parameters.values()]).sum().sqrt().item()


def gradients(checkpoints, loras, case, seed):
    """Tensors and figures of a case of GRADIENTS."""
    pipeline, parameters, kind = pipeline_of(checkpoints, case, loras)
    frames, rows, columns = case["latents"]
    generator = torch.Generator().manual_seed(seed)
    shape = (1, frames, pipeline.transformer.config.out_channels, rows, columns)
    x0, noise = (torch.randn(shape, generator=generator) for _ in range(2))
    timestep = torch.tensor([case["timestep"]])
    x = pipeline.scheduler.add_noise(x0, noise, timestep)
    v = pipeline.scheduler.get_velocity(x0, noise, timestep)
    text = embeddings_of(checkpoints, kind)[case["text"]][None]
    image = None
    if takes_image(pipeline):
        image = torch.zeros(shape)
        image[:, 0] = torch.randn(image[:, 0].shape, generator=generator)
    out = call(pipeline, x, text, timestep, image)
    loss = losses_of(out, v).mean()
    loss.backward()
    tensors = {"latents": x[0], "target": v[0]} | ({} if image is None else {"image": image[0]})
    facts = {"kind": kind, "timestep": case["timestep"], "text": case["text"], "loss": loss.item(),
             "gradient_norm": norm_of(parameters)}
    if "lora" in case:
        tensors |= {"output": out[0].detach()} | {f"gradient.{name}": p.grad for name, p in parameters.items()}
        facts["lora"] = f"{case['lora']}_lora.safetensors"
    else:
        tensors |= {f"gradient.{name}": kept(p.grad) for name, p in parameters.items()}
        facts["largest"] = {name: p.grad.abs().max().item() for name, p in parameters.items()}
    return tensors, facts


def embeddings_of(checkpoints, kind):
    return load_file(checkpoints / kind / "reference.safetensors")["text.embeddings"]


def cached_samples(pipeline, case, seed):
    """Means and standard deviations of the posterior, each [sample, frame, channel, row, column]."""
    frames, rows, columns = case["latents"]
    generator = torch.Generator().manual_seed(seed)
    shape = (SAMPLES, frames, pipeline.transformer.config.out_channels, rows, columns)
    mean = torch.randn(shape, generator=generator) / pipeline.vae.config.scaling_factor
    std = torch.exp(-4.0 + 0.8 * torch.randn(shape, generator=generator))
    return mean, std


def first_frames(pipeline, case):
    """Of a model that makes videos from images: [sample, row, column, 3], 0 to 255; otherwise None. steps_test.cpp
    computes the same."""
    if not takes_image(pipeline):
        return None
    _, rows, columns = case["latents"]
    sample, row, column, channel = torch.meshgrid(
        *(torch.arange(n) for n in (SAMPLES, 8 * rows, 8 * columns, 3)), indexing="ij")
    return ((3 * row + 5 * column + 40 * channel + 60 * sample) % 256).float()


def image_latents(pipeline, frame, level, generator, like, sampled):
    """Of a frame with noise of this level: in the shape of `like`, latents with padding."""
    pixels = 2 * (frame.permute(2, 0, 1) / 255) - 1
    noisy = pixels + level * torch.randn(pixels.shape, generator=generator)
    with torch.no_grad():
        posterior = pipeline.vae.encode(noisy[None, :, None]).latent_dist
        latents = posterior.sample(generator) if sampled else posterior.mode()
    factor = pipeline.vae.config.scaling_factor
    latents = latents / factor if pipeline.vae.config.invert_scale_latents else latents * factor
    image = torch.zeros_like(like)
    image[0] = latents[0, :, 0]
    return image


def drawn_sample(pipeline, mean, std, frames, number):
    """Sample `number` of the run: scaled latents and noise, both with padding; timestep; whether the caption
    is dropped; latents of the image and whether it is dropped, or None. `mean`, `std` and `frames` are those of
    all samples of the data."""
    epoch, place = divmod(number, SAMPLES)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SETTINGS["seed"] + epoch))
    which = int(order[place])
    generator = torch.Generator().manual_seed(SETTINGS["seed"] + number)
    timestep = torch.randint(0, 1000, (1,), generator=generator)
    dropped = bool(torch.rand(1, generator=generator) < SETTINGS["caption_dropout"])
    image = image_dropped = None
    if frames is not None:
        image_dropped = bool(torch.rand(1, generator=generator) < IMAGE_DROPOUT)
        level = torch.exp(-3.0 + 0.5 * torch.randn(1, generator=generator))
    posterior = torch.randn(mean[which].shape, generator=generator)
    noise = torch.randn(mean[which].shape, generator=generator)
    x0, noise = padded(pipeline, mean[which] + std[which] * posterior, noise, generator)
    if frames is not None:
        image = image_latents(pipeline, frames[which], level, generator, x0, True)
        image = torch.zeros_like(x0) if image_dropped else image
    return which, x0, noise, timestep, dropped, image, image_dropped


def padded(pipeline, latents, noise, generator):
    """Scaled latents, and noise, both with padding."""
    x0 = latents * pipeline.vae.config.scaling_factor
    padding = x0.shape[0] % (pipeline.transformer.config.patch_size_t or 1)
    if padding:
        x0 = torch.cat([x0[:1]] * padding + [x0])
        noise = torch.cat([torch.randn((padding, *noise.shape[1:]), generator=generator), noise])
    return x0, noise


def validation(pipeline, mean, frames, text):
    """The mean loss of the first clips, with the means of their posteriors, at each of four timesteps."""
    losses = []
    for quarter in range(4):
        timestep, of_clips = torch.tensor([125 + 250 * quarter]), []
        for clip in range(min(4, SAMPLES)):
            generator = torch.Generator().manual_seed(SETTINGS["seed"] + 2**31 + 4 * clip + quarter)
            x0, noise = padded(pipeline, mean[clip], torch.randn(mean[clip].shape, generator=generator), generator)
            x = pipeline.scheduler.add_noise(x0[None], noise[None], timestep)
            v = pipeline.scheduler.get_velocity(x0[None], noise[None], timestep)
            image = None
            if frames is not None:
                level = torch.exp(torch.tensor(-3.0))
                image = image_latents(pipeline, frames[clip], level, generator, x0, False)[None]
            with torch.no_grad():
                out = call(pipeline, x, text[TEXTS[clip]][None], timestep, image)
            of_clips.append(losses_of(out, v).item())
        losses.append(sum(of_clips) / len(of_clips))
    return losses


def weighted_losses(scheduler, out, x, x0, timesteps):
    """The loss of diffusers' script, of each sample."""
    predicted = scheduler.get_velocity(out, x, timesteps)
    weights = 1 / (1 - scheduler.alphas_cumprod[timesteps])
    return (weights.view(-1, 1, 1, 1, 1) * (predicted - x0) ** 2).flatten(1).mean(1)


def train(checkpoints, loras, case, seed, loss_of):
    """The data, a row of figures per step, the validation before the first and after the last step, and what is
    trained after the last. loss_of(scheduler, out, x, x0, v, timesteps) → of each sample"""
    pipeline, parameters, kind = pipeline_of(checkpoints, case, loras)
    scheduler = pipeline.scheduler
    text = embeddings_of(checkpoints, kind)
    mean, std = cached_samples(pipeline, case, seed)
    frames = first_frames(pipeline, case)
    optimizer = torch.optim.AdamW(
        parameters.values(), lr=SETTINGS["learning_rate"], betas=(SETTINGS["beta1"], SETTINGS["beta2"]),
        eps=SETTINGS["epsilon"], weight_decay=SETTINGS["weight_decay"], foreach=False)
    rates = get_scheduler(SETTINGS["schedule"], optimizer, num_warmup_steps=SETTINGS["warmup"],
                          num_training_steps=SETTINGS["steps"])
    rows, validated = [], [validation(pipeline, mean, frames, text)]
    for step in range(SETTINGS["steps"]):
        batch = SETTINGS["batch"]
        samples = [drawn_sample(pipeline, mean, std, frames, step * batch + place) for place in range(batch)]
        which, x0, noise, timesteps, dropped, images, images_dropped = zip(*samples)
        x0, noise, timesteps = torch.stack(x0), torch.stack(noise), torch.cat(timesteps)
        x = scheduler.add_noise(x0, noise, timesteps)
        v = scheduler.get_velocity(x0, noise, timesteps)
        context = torch.stack([text[EMPTY_TEXT if d else TEXTS[w]] for w, d in zip(which, dropped)])
        image = None if frames is None else torch.stack(images)
        Dropout.samples = range(step * batch, (step + 1) * batch)
        losses = loss_of(scheduler, call(pipeline, x, context, timesteps, image), x, x0, v, timesteps)
        Dropout.samples = None
        loss = losses.mean()
        loss.backward()
        norm = norm_of(parameters)
        torch.nn.utils.clip_grad_norm_(parameters.values(), SETTINGS["clip"])
        rows.append({"samples": list(which), "timesteps": timesteps.tolist(), "dropped": list(dropped),
                     "loss": loss.item(), "sample_losses": losses.tolist(), "gradient_norm": norm,
                     "learning_rate": rates.get_last_lr()[0]})
        if frames is not None:
            rows[-1]["images_dropped"] = list(images_dropped)
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
    validated.append(validation(pipeline, mean, frames, text))
    return ({"latent_mean": mean, "latent_std": std}, rows, validated,
            {k: p.detach().clone() for k, p in parameters.items()})


def settings_of(kind):
    return SETTINGS | ({"image_dropout": IMAGE_DROPOUT} if kind in IMAGE_KINDS else {})


def largest_difference(a, b, start):
    """Between two trained LoRAs, as a share of the largest change from the start."""
    change = max(float((a[name] - start[name]).abs().max()) for name in a)
    return max(float((a[name] - b[name]).abs().max()) for name in a) / change


def ten_steps(checkpoints, loras, name, case, seed):
    """Tensors and figures of a case of TEN_STEPS."""
    tensors, rows, validated, final = train(
        checkpoints, loras, case, seed, lambda _s, out, _x, _x0, v, _t: losses_of(out, v))
    _, weighted, _, weighted_final = train(
        checkpoints, loras, case, seed, lambda s, out, x, x0, _v, t: weighted_losses(s, out, x, x0, t))
    start = loras[case["lora"]]
    assert any(row["gradient_norm"] > SETTINGS["clip"] for row in rows)
    assert any(row["gradient_norm"] < SETTINGS["clip"] for row in rows)
    difference = largest_difference(final, weighted_final, start)
    for row, other in zip(rows, weighted):
        print(f"{name} step: loss {row['loss']:.9f}, w(x0 - x)^2 {other['loss']:.9f}, relative difference "
              f"{abs(other['loss'] / row['loss'] - 1):.1e}; gradient norm {row['gradient_norm']:.4f}, rate "
              f"{row['learning_rate']:.3e}, timesteps {row['timesteps']}, dropped {row['dropped']}")
        assert abs(other["loss"] / row["loss"] - 1) < 1e-4
    print(f"{name}: LoRAs after ten steps with either loss differ by {difference:.1e} of the largest change")
    tensors |= {f"final.{key}": value for key, value in final.items()}
    kind = LORAS[case["lora"]][0]
    facts = {"kind": kind, "lora": f"{case['lora']}_lora.safetensors", "texts": TEXTS, "empty_text": EMPTY_TEXT,
             **settings_of(kind), "lora_dropout": case.get("dropout", 0), "steps_done": rows, "validation": validated,
             "weighted_loss_of_first_step": weighted[0]["loss"], "weighted_difference": difference}
    return tensors, facts


def ten_steps_of_all(checkpoints, case, seed):
    """Tensors and figures of a case of ALL_STEPS."""
    start = {name: p.detach().clone() for name, p in with_all_weights(checkpoints, case["kind"])[1].items()}
    tensors, rows, validated, final = train(
        checkpoints, {}, case, seed, lambda _s, out, _x, _x0, v, _t: losses_of(out, v))
    tensors |= {f"change.{name}": kept(value - start[name]) for name, value in final.items()}
    change = max(float((final[name] - start[name]).abs().max()) for name in final)
    for row in rows:
        print(f"all weights of {case['kind']}: loss {row['loss']:.9f}, gradient norm {row['gradient_norm']:.4f}")
    return tensors, {"kind": case["kind"], "texts": TEXTS, "empty_text": EMPTY_TEXT, **settings_of(case["kind"]),
                     "steps_done": rows, "validation": validated, "largest_change": change}


def main():
    prepare_libraries()
    torch.set_grad_enabled(True)
    checkpoints, out = folders_given(__doc__, "training")
    loras = {}
    for seed, (name, (kind, targets)) in enumerate(LORAS.items(), start=100):
        transformer = load(checkpoints / kind, torch.float32).transformer
        loras[name] = drawn_lora(transformer, name, seed)
        settings = config_of(name).to_dict() | {"target_modules": sorted(targets)}
        CogVideoXPipeline.save_lora_weights(out, loras[name], weight_name=f"{name}_lora.safetensors",
                                            transformer_lora_adapter_metadata=settings)
    tensors, facts = {}, {"gradients": {}, "ten_steps": {}}
    for seed, (name, case) in enumerate(GRADIENTS.items(), start=200):
        results, facts["gradients"][name] = gradients(checkpoints, loras, case, seed)
        tensors |= {f"gradients.{name}.{key}": value for key, value in results.items()}
        print(f"{name}: {facts['gradients'][name]}")
    for seed, (name, case) in enumerate(TEN_STEPS.items(), start=300):
        results, facts["ten_steps"][name] = ten_steps(checkpoints, loras, name, case, seed)
        tensors |= {f"ten_steps.{name}.{key}": value for key, value in results.items()}
    facts |= {"all_gradients": {}, "all_steps": {}}
    for seed, (name, case) in enumerate(ALL_GRADIENTS.items(), start=400):
        results, facts["all_gradients"][name] = gradients(checkpoints, loras, case, seed)
        tensors |= {f"all_gradients.{name}.{key}": value for key, value in results.items()}
    for seed, (name, case) in enumerate(ALL_STEPS.items(), start=500):
        results, facts["all_steps"][name] = ten_steps_of_all(checkpoints, case, seed)
        tensors |= {f"all_steps.{name}.{key}": value for key, value in results.items()}
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, out / "reference.safetensors")
    for file in out.glob("*.safetensors"):
        file.chmod(0o644)
    write_json(out / "reference.json", facts)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/data/cogvideox: tiny CogVideoX checkpoints and the results of the reference pipeline.

Each kind (sincos, rotary, v1_5, i2v, i2v_1_5) becomes a checkpoint folder in the Hugging Face layout
with random weights, written by save_pretrained. reference.safetensors and reference.json in the same
folder hold the results of diffusers' CogVideoXPipeline in float32 on the CPU; for kinds that begin from
an image, only texts and calls of the transformer. bf16_errors.json has the errors of PyTorch's bfloat16
against these results. tests/data/cogvideox/README.md describes the tensors.

To run it again:
    pip install "torch==2.15.*" "diffusers==0.36.*" "transformers<5" accelerate sentencepiece safetensors
    python tools/reference/make_cogvideox_data.py                 # all kinds, into tests/data/cogvideox
    python tools/reference/make_cogvideox_data.py --out /tmp/again --kinds rotary

Everything is seeded and runs on one thread, so that a second run writes the same bytes. With another
PyTorch version or another kind of CPU the last bits may differ.
"""
import argparse
import contextlib
import copy
import io
import json
import math
import shutil
from pathlib import Path

import diffusers
import numpy as np
import sentencepiece
import torch
import transformers
from diffusers.schedulers import scheduling_dpm_cogvideox
from safetensors.torch import save_file

from cogvideox_kinds import CORPUS, IMAGE_KINDS, KINDS, PROMPTS

# ------------------------------------------------------------------------------------------------
# Checkpoints


def train_tokenizer(path, normalization):
    """Trains a unigram model with T5's special ids; it contains no file name, so its bytes are reproducible."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, model_type="unigram", vocab_size=380,
        hard_vocab_limit=False, character_coverage=0.9995, normalization_rule_name=normalization,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, pad_piece="<pad>", eos_piece="</s>", unk_piece="<unk>",
        num_threads=1, minloglevel=2)
    path.write_bytes(model.getvalue())


def spread(name, shape, gains):
    """Mean and standard deviation of a parameter, such that activations are of order one."""
    if name.endswith("conv_y.conv.bias"):
        return 1.0, 0.1  # the factor of a spatial norm: near one, otherwise the signal vanishes
    if name.endswith("bias"):
        return 0.0, 0.1
    if "norm_q" in name or "norm_k" in name:
        return 1.5, 0.15  # sharper attention, so that the prompt has an effect
    if len(shape) == 1:
        return 1.0, 0.1  # weights of norms
    if name.endswith(("shared.weight", "embed_tokens.weight", "relative_attention_bias.weight")):
        return 0.0, 1.0
    gain = next((g for part, g in gains.items() if part in name), 1.0)
    return 0.0, gain / math.sqrt(math.prod(shape[1:]))


def fill(module, seed, gains):
    """Draws all parameters in the order of their names, independent of the library's order."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in sorted(module.named_parameters()):
        mean, std = spread(name, p.shape, gains)
        p.copy_(mean + std * torch.randn(p.shape, generator=generator))
    for name, table in sorted(module.named_buffers()):
        if name in module.state_dict():  # learned positions, which the class fills with sines and cosines
            table.copy_(0.5 * torch.randn(table.shape, generator=generator))
    return module.eval()


def takes_image(kind):
    return kind["transformer"]["in_channels"] != kind["transformer"]["out_channels"]


def pipeline_class(kind):
    return diffusers.CogVideoXImageToVideoPipeline if takes_image(kind) else diffusers.CogVideoXPipeline


def make_checkpoint(kind, folder):
    """Writes the checkpoint of one kind by save_pretrained, in the dtype of this kind."""
    folder.mkdir(parents=True)
    train_tokenizer(folder / "trained.model", kind["normalization"])
    tokenizer = transformers.T5Tokenizer(
        str(folder / "trained.model"), legacy=True, extra_ids=100, model_max_length=kind["max_length"])
    rows = -(-(len(tokenizer)) // 32) * 32  # T5's embedding has more rows than there are ids
    t5 = transformers.T5Config(
        vocab_size=rows, d_model=32, d_kv=8, num_heads=4, d_ff=56, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, decoder_start_token_id=0, **kind["t5"])
    parts = {
        "text_encoder": fill(transformers.T5EncoderModel(t5), kind["seed"], {".q.": 0.5, ".wo.": 1.3}),
        "transformer": fill(
            diffusers.CogVideoXTransformer3DModel(**kind["transformer"]), kind["seed"] + 1,
            {"ff.net.2": 1.3, "to_out": 1.5, "text_proj": 1.5, "norm2.linear": 0.7, "norm_out.linear": 0.7,
             "proj_out": 0.7}),
        "vae": fill(
            diffusers.AutoencoderKLCogVideoX(**kind["vae"]), kind["seed"] + 2,
            {"conv_y": 0.15, "conv_b": 0.25, "decoder.conv_out": kind["contrast"]}),
    }
    for part in parts.values():
        part.to(kind["dtype"])
    scheduler = getattr(diffusers, kind["scheduler"])(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False,
        prediction_type="v_prediction", rescale_betas_zero_snr=True, set_alpha_to_one=True,
        timestep_spacing="trailing", snr_shift_scale=kind["snr_shift"])
    pipeline = pipeline_class(kind)(tokenizer=tokenizer, scheduler=scheduler, **parts)
    pipeline.save_pretrained(folder, max_shard_size=kind["max_shard_size"])
    (folder / "trained.model").unlink()


def load(folder, dtype):
    pipeline = diffusers.DiffusionPipeline.from_pretrained(folder, torch_dtype=dtype)
    pipeline.set_progress_bar_config(disable=True)
    for part in (pipeline.text_encoder, pipeline.transformer, pipeline.vae):
        part.to(dtype).eval()
    return pipeline


# ------------------------------------------------------------------------------------------------
# Results of the reference pipeline


@contextlib.contextmanager
def noise_of_float32():
    """A bfloat16 pipeline draws other random values than a float32 one. Gives it the float32 noise, rounded."""
    draw = scheduling_dpm_cogvideox.randn_tensor

    def rounded(shape, generator=None, device=None, dtype=None, layout=None):
        return draw(shape, generator=generator, device=device, dtype=torch.float32).to(dtype)

    scheduling_dpm_cogvideox.randn_tensor = rounded
    try:
        yield
    finally:
        scheduling_dpm_cogvideox.randn_tensor = draw


def latent_shape(kind):
    """Shape [batch, frame, channel, row, column] of the noise, with padding frames; number of padding frames."""
    frames = (kind["num_frames"] - 1) // 4 + 1
    patch = kind["transformer"].get("patch_size_t") or 1
    padded = -(-frames // patch) * patch
    return (1, padded, kind["transformer"]["out_channels"], kind["height"] // 8, kind["width"] // 8), padded - frames


def encode(pipeline, kind, text):
    return pipeline._get_t5_prompt_embeds(text, max_sequence_length=kind["max_length"])


def denoise(pipeline, kind, clip):
    """Calls the pipeline. Returns its latents after every step and all calls of the transformer."""
    generator = torch.Generator().manual_seed(clip["seed"])
    shape, _ = latent_shape(kind)
    half = pipeline.transformer.dtype != torch.float32
    noise = torch.randn(shape, generator=generator).to(pipeline.transformer.dtype)
    if not half:  # the pipeline draws the noise itself
        generator.manual_seed(clip["seed"])
    run = {"noise": noise, "latents": [], "timesteps": [], "guidance": [], "outputs": [], "rotary": None}

    def after_step(_, step, t, state):
        run["latents"].append(state["latents"].clone())
        run["timesteps"].append(float(t))
        run["guidance"].append(float(pipeline.guidance_scale))
        return {}

    def after_call(_, args, arguments, output):
        expected = noise if not run["latents"] else run["latents"][-1]
        assert torch.equal(arguments["hidden_states"], torch.cat([expected] * 2))
        run["outputs"].append(output[0].clone())
        run["rotary"] = arguments["image_rotary_emb"]

    hook = pipeline.transformer.register_forward_hook(after_call, with_kwargs=True)
    with noise_of_float32() if half else contextlib.nullcontext():
        run["final"] = pipeline(
            PROMPTS[clip["prompt"]], negative_prompt=PROMPTS[clip["negative"]], height=kind["height"],
            width=kind["width"], num_frames=kind["num_frames"], num_inference_steps=kind["steps"],
            guidance_scale=kind["guidance"], use_dynamic_cfg=kind["dynamic"], generator=generator,
            latents=noise if half else None, output_type="latent", callback_on_step_end=after_step,
            max_sequence_length=kind["max_length"]).frames
    hook.remove()
    assert torch.equal(run["final"], run["latents"][-1])
    return run


def decode(pipeline, kind, latents):
    """Decodes latents of the sampler to floats [channel, frame, row, column], not clamped."""
    _, padding = latent_shape(kind)
    return pipeline.decode_latents(latents[:, padding:])[0]


def to_bytes(pipeline, decoded):
    """uint8 [frame, row, column, channel], rounded as in the pipeline's postprocessing."""
    pictures = pipeline.video_processor.postprocess_video(decoded[None], output_type="pil")[0]
    return torch.from_numpy(np.stack([np.asarray(p) for p in pictures]))


def vae_latents(kind):
    """Inputs of the decoder, [channel, frame, row, column], for several numbers of frames."""
    generator = torch.Generator().manual_seed(1000 + kind["seed"])
    channels = kind["vae"]["latent_channels"]
    return {n: torch.randn((channels, n, *kind["vae_grid"]), generator=generator) for n in (1, 2, 3, 5)}


def chosen_frames(count):
    """The first frames, the last one, and those at the boundaries of the decoder's frame batches."""
    return sorted({0, min(1, count - 1), *(f for f in (8, 9) if f < count - 1), count - 1})


def encode_all(pipeline, kind):
    """Token ids and embeddings of all texts."""
    ids = [pipeline.tokenizer(PROMPTS[i], padding="max_length", max_length=kind["max_length"], truncation=True,
                              return_tensors="pt").input_ids[0] for i in kind["texts"]]
    return ids, [encode(pipeline, kind, PROMPTS[i])[0] for i in kind["texts"]]


def context_of(kind, embeddings, clip):
    """Embeddings of both branches of guidance."""
    text = dict(zip(kind["texts"], embeddings))
    return torch.stack([text[clip["negative"]], text[clip["prompt"]]])


def reference(pipeline, kind):
    """All results in float32, with which the bfloat16 run is compared too."""
    ids, embeddings = encode_all(pipeline, kind)
    runs = [denoise(pipeline, kind, clip) for clip in kind["clips"]]
    decoded = [decode(pipeline, kind, run["final"]) for run in runs]
    videos = [to_bytes(pipeline, d) for d in decoded]
    vae = {n: (z, pipeline.vae.decode(z[None]).sample[0]) for n, z in vae_latents(kind).items()}
    return dict(ids=ids, embeddings=embeddings, runs=runs, decoded=decoded, videos=videos, vae=vae)


def as_tensors(pipeline, kind, result):
    tensors = {"text.tokens": torch.stack(result["ids"]), "text.embeddings": torch.stack(result["embeddings"])}
    run = result["runs"][0]
    calls = [0, kind["steps"] // 2]
    before = [run["noise"], *run["latents"]]
    tensors["timesteps"] = torch.tensor(run["timesteps"])
    tensors["guidance"] = torch.tensor(run["guidance"])
    tensors["transformer.timestep"] = torch.tensor([run["timesteps"][k] for k in calls])
    tensors["transformer.latents"] = torch.stack([before[k][0] for k in calls])
    tensors["transformer.output"] = torch.stack([run["outputs"][k] for k in calls])
    if run["rotary"] is not None:
        tensors["rotary.cos"], tensors["rotary.sin"] = run["rotary"]
    else:
        _, frames, _, rows, columns = run["noise"].shape
        table = pipeline.transformer.patch_embed._get_positional_embeddings(rows, columns, (frames - 1) * 4 + 1)
        tensors["positions"] = table[0, kind["max_length"]:]
    for i, (run, decoded, video) in enumerate(zip(result["runs"], result["decoded"], result["videos"])):
        tensors[f"clip{i}.noise"] = run["noise"][0]
        tensors[f"clip{i}.latents"] = run["final"][0]
        ends = [0, len(video) - 1]
        if i == 0:  # one clip is stored in full; the other shows that prompt and seed have an effect
            tensors["clip0.latents_after_step"] = torch.stack(run["latents"])[:, 0]
            tensors["clip0.decoded_frames"], tensors["clip0.decoded"] = torch.tensor(ends), decoded[:, ends]
        stored = list(range(len(video))) if i == 0 else ends
        tensors[f"clip{i}.video_frames"], tensors[f"clip{i}.video"] = torch.tensor(stored), video[stored]
    for n, (z, floats) in result["vae"].items():
        frames = chosen_frames(floats.shape[1])
        tensors[f"vae.latents_{n}"] = z
        tensors[f"vae.frames_{n}"] = torch.tensor(frames)
        tensors[f"vae.decoded_{n}"] = floats[:, frames]
    for name, tensor in tensors.items():  # 0 … 255 are exact in float16, at half the bytes of float32
        tensors[name] = tensor.to(torch.float16 if name.endswith(".video") else torch.float32).contiguous().clone()
        assert torch.isfinite(tensors[name]).all(), name
    return tensors


# ------------------------------------------------------------------------------------------------
# Errors of PyTorch's bfloat16


def error(got, expected):
    """Maximum and root-mean-square error, both divided by the largest expected absolute value."""
    difference, scale = (got.double() - expected.double()), expected.double().abs().max()
    return {"max": float(difference.abs().max() / scale), "rms": float(difference.pow(2).mean().sqrt() / scale)}


def bfloat16_errors(pipeline, kind, result):
    rounded = torch.bfloat16
    run = result["runs"][0]
    clip = kind["clips"][0]
    context = context_of(kind, result["embeddings"], clip).to(rounded)
    errors = {"text": error(torch.stack([encode(pipeline, kind, PROMPTS[i])[0] for i in kind["texts"]]),
                            torch.stack(result["embeddings"]))}
    before = [run["noise"], *run["latents"]]
    calls = [0, kind["steps"] // 2]
    outputs = [pipeline.transformer(
        torch.cat([before[k]] * 2).to(rounded), context, torch.full((2,), int(run["timesteps"][k])),
        image_rotary_emb=run["rotary"], return_dict=False)[0] for k in calls]
    errors["transformer"] = error(torch.stack(outputs), torch.stack([run["outputs"][k] for k in calls]))
    errors["vae"] = {}
    for n, (z, floats) in result["vae"].items():
        frames = chosen_frames(floats.shape[1])
        got = pipeline.vae.decode(z[None].to(rounded)).sample[0]
        errors["vae"][str(n)] = error(got[:, frames], floats[:, frames])
    errors["clips"] = []
    for clip, run, decoded, video in zip(kind["clips"], result["runs"], result["decoded"], result["videos"]):
        whole = denoise(pipeline, kind, clip)
        floats = decode(pipeline, kind, whole["final"])
        again = decode(pipeline, kind, run["final"].to(rounded))
        ends = [0, len(video) - 1]
        levels = (to_bytes(pipeline, floats).double() - video.double()).abs()
        errors["clips"].append({
            "latents_after_first_step": error(whole["latents"][0], run["latents"][0]),
            "latents": error(whole["final"], run["final"]),
            "decoded_from_reference_latents": error(again[:, ends], decoded[:, ends]),
            "decoded": error(floats[:, ends], decoded[:, ends]),
            "video_levels": {"max": float(levels.max()), "rms": float(levels.pow(2).mean().sqrt())},
        })
    return errors


# ------------------------------------------------------------------------------------------------
# Kinds that begin from an image: calls of the transformer with random latents


def image_calls(pipeline, kind, embeddings):
    """Calls of the transformer of the first clip, as CogVideoXImageToVideoPipeline makes them.

    Latents of the image are random in all frames, so that none can be mistaken for another.
    """
    dtype = pipeline.transformer.dtype
    generator = torch.Generator().manual_seed(2000 + kind["seed"])
    shape, _ = latent_shape(kind)
    latents = torch.randn((2, *shape[1:]), generator=generator)
    image = torch.randn(shape[1:], generator=generator)
    timesteps = torch.tensor([999, 499])
    rotary = pipeline._prepare_rotary_positional_embeddings(kind["height"], kind["width"], shape[1], "cpu")
    context = context_of(kind, embeddings, kind["clips"][0]).to(dtype)
    ofs = None if pipeline.transformer.config.ofs_embed_dim is None else torch.full((1,), 2.0, dtype=dtype)
    outputs = [pipeline.transformer(
        torch.stack([torch.cat([x, image], dim=1)] * 2).to(dtype), context, t.expand(2), ofs=ofs,
        image_rotary_emb=rotary, return_dict=False)[0] for x, t in zip(latents, timesteps)]
    return {"rotary.cos": rotary[0], "rotary.sin": rotary[1], "transformer.timestep": timesteps,
            "transformer.latents": latents, "transformer.image": image, "transformer.output": torch.stack(outputs)}


def image_reference(pipeline, kind):
    ids, embeddings = encode_all(pipeline, kind)
    tensors = {"text.tokens": torch.stack(ids), "text.embeddings": torch.stack(embeddings),
               **image_calls(pipeline, kind, embeddings)}
    return {name: tensor.float().contiguous().clone() for name, tensor in tensors.items()}


def image_bfloat16_errors(pipeline, kind, expected):
    embeddings = list(expected["text.embeddings"])
    calls = image_calls(pipeline, kind, embeddings)
    return {"text": error(torch.stack(encode_all(pipeline, kind)[1]), expected["text.embeddings"]),
            "transformer": error(calls["transformer.output"], expected["transformer.output"])}


# ------------------------------------------------------------------------------------------------


def describe(kind):
    clips = [{"prompt": PROMPTS[c["prompt"]], "negative_prompt": PROMPTS[c["negative"]], "seed": c["seed"],
              "prompt_index": kind["texts"].index(c["prompt"]),
              "negative_index": kind["texts"].index(c["negative"])} for c in kind["clips"]]
    return {
        "texts": [PROMPTS[i] for i in kind["texts"]], "clips": clips,
        "height": kind["height"], "width": kind["width"], "num_frames": kind["num_frames"],
        "padding_latent_frames": latent_shape(kind)[1], "steps": kind["steps"], "guidance": kind["guidance"],
        "dynamic_guidance": kind["dynamic"], "max_sequence_length": kind["max_length"],
        "made_with": {m.__name__: m.__version__.split("+")[0] for m in (torch, diffusers, transformers, sentencepiece)},
    }


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=False) + "\n", encoding="utf-8")


def summary(name, result):
    """Prints figures to be checked by eye: a saturated or grey video would hide errors."""
    for i, (run, video) in enumerate(zip(result["runs"], result["videos"])):
        levels = video.float()
        uncond, cond = run["outputs"][1]
        print(f"{name} clip{i}: largest latents {[round(float(x.abs().max()), 2) for x in run['latents']]}, "
              f"v rms {float(run['outputs'][0].pow(2).mean().sqrt()):.2f}, "
              f"cond - uncond rms {float((cond - uncond).pow(2).mean().sqrt()):.2f}, video {list(video.shape)} mean "
              f"{levels.mean():.1f} std {levels.std():.1f}, at 0 or 255: "
              f"{float(((video == 0) | (video == 255)).float().mean()):.3f}, "
              f"std along time {float(levels.std(0).mean()):.1f}, in a frame {float(levels.std((1, 2)).mean()):.1f}")


def prepare_libraries():
    """So that a second run computes the same bytes."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    diffusers.logging.set_verbosity_error()


def folders_given(description, name):
    """From the command line: folder of the checkpoints, and the empty folder to write into, by default
    the one of this name in it."""
    root = Path(__file__).resolve().parents[2]
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--checkpoints", type=Path, default=root / "tests/data/cogvideox", help="folder of the kinds")
    options.add_argument("--out", type=Path, help=f"folder to write into; default: CHECKPOINTS/{name}")
    options = options.parse_args()
    out = options.out or options.checkpoints / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return options.checkpoints, out


def main():
    root = Path(__file__).resolve().parents[2]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=root / "tests/data/cogvideox", help="folder to write into")
    kinds = KINDS | IMAGE_KINDS
    options.add_argument("--kinds", nargs="+", choices=list(kinds), default=list(kinds), help="default: all")
    options = options.parse_args()
    prepare_libraries()
    errors_path = options.out / "bf16_errors.json"
    errors = json.loads(errors_path.read_text()) if errors_path.exists() else {}
    for name in options.kinds:
        kind, folder = copy.deepcopy(kinds[name]), options.out / name
        shutil.rmtree(folder, ignore_errors=True)
        make_checkpoint(kind, folder)
        pipeline = load(folder, torch.float32)
        half = load(folder, torch.bfloat16)
        if takes_image(kind):
            tensors = image_reference(pipeline, kind)
            errors[name] = image_bfloat16_errors(half, kind, tensors)
        else:
            result = reference(pipeline, kind)
            tensors = as_tensors(pipeline, kind, result)
            errors[name] = bfloat16_errors(half, kind, result)
            summary(name, result)
        save_file(tensors, folder / "reference.safetensors")
        write_json(folder / "reference.json", describe(kind))
        for path in folder.rglob("*.safetensors"):
            path.chmod(0o644)
        write_json(errors_path, {k: errors[k] for k in kinds if k in errors})


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/data/opensora: tiny Open-Sora checkpoints and the results of Open-Sora's own code.

Each kind (v1_0, v1_2) becomes a model folder for reelmesh with random weights. reference.safetensors and
reference.json in the same folder hold the results of the released code in float32 on the CPU. caption_cleaning.json
holds prompts and the results of Open-Sora's text cleaning. tests/data/opensora/README.md describes folders and tensors.

To run it again:
    git clone --branch v1.0.0 https://github.com/hpcaitech/Open-Sora open-sora-1.0
    git clone --branch v1.2.0 https://github.com/hpcaitech/Open-Sora open-sora-1.2
    pip install "torch==2.15.*" "diffusers==0.36.*" "transformers<5" accelerate sentencepiece safetensors \\
        einops rotary_embedding_torch beautifulsoup4 ftfy
    python tools/reference/make_opensora_data.py --v1-0 open-sora-1.0 --v1-2 open-sora-1.2

Everything is seeded and runs on one thread, so that a second run writes the same bytes. With another PyTorch version
or another kind of CPU the last bits may differ.
"""
import argparse
import json
import shutil
from pathlib import Path

import diffusers
import sentencepiece
import torch
import transformers
from safetensors.torch import save_file

import opensora_release
from make_cogvideox_data import write_json
from opensora_bf16 import errors_v1_0, errors_v1_2
from opensora_captions import cleaned_captions
from opensora_checkpoints import make_v1_0, make_v1_2, make_wide, weights_of
from opensora_kinds import KINDS, PROMPTS

def chosen(count):
    """The frames that are stored of large results: first, one in the middle, last."""
    return sorted({0, count // 2 - 1, count - 1} - {-1})


# ------------------------------------------------------------------------------------------------
# Results of Open-Sora's code


def text_encoder_of(t5, folder, kind, y_embedder):
    """Open-Sora's text encoder with the tiny T5. Bypasses its constructor, which loads the released T5 by name."""
    embedder = t5.T5Embedder.__new__(t5.T5Embedder)
    embedder.device, embedder.use_text_preprocessing = torch.device("cpu"), True
    embedder.model_max_length = kind["max_length"]
    embedder.tokenizer = transformers.T5Tokenizer.from_pretrained(folder / "tokenizer")
    embedder.model = transformers.T5EncoderModel.from_pretrained(folder / "text_encoder", dtype=torch.float32).eval()
    encoder = t5.T5Encoder.__new__(t5.T5Encoder)
    encoder.t5, encoder.y_embedder = embedder, y_embedder
    encoder.model_max_length, encoder.output_dim = kind["max_length"], embedder.model.config.d_model
    return encoder


class Recorder:
    """Wraps the transformer for a sampler and records its inputs and outputs."""

    def __init__(self, model):
        self.model, self.latents, self.timesteps, self.outputs, self.arguments = model, [], [], [], None

    def forward(self, x, timestep, *args, **kwargs):
        output = self.model(x, timestep, *args, **kwargs)
        half = len(x) // 2
        assert torch.equal(x[:half], x[half:])
        self.latents.append(x[:half].clone())
        self.timesteps.append(timestep.float().clone())
        self.outputs.append(output)
        self.arguments = kwargs
        return output

    __call__ = forward


def record_steps(run, recorder, z, final):
    """Stores the noise z and the latents after every step of a sampler run with one clip."""
    assert torch.equal(recorder.latents[0], z)
    run["noise"] = z[0]
    run["timesteps"] = torch.stack([t[0] for t in recorder.timesteps])
    run["latents_after_step"] = torch.stack([x[0] for x in [*recorder.latents[1:], final]])
    run["latents"] = final[0]
    run["first_output"] = recorder.outputs[0]


def text_results(encoder, texts, cleaned):
    """Token ids of `cleaned`, and mask and embeddings that the encoder gives for `texts`."""
    encoded = encoder.t5.tokenizer(
        cleaned, max_length=encoder.model_max_length, padding="max_length", truncation=True, return_tensors="pt")
    embeddings = encoder.encode(texts)
    assert torch.equal(encoded["attention_mask"], embeddings["mask"])
    return {"text.tokens": encoded["input_ids"], "text.mask": embeddings["mask"],
            "text.embeddings": embeddings["y"][:, 0]}


def to_bytes(decoded):
    """Floats [channel, frame, row, column] -> uint8 [frame, row, column, channel], rounded as in save_sample."""
    x = decoded.clamp(-1, 1).sub(-1).div(2).mul(255).add(0.5).clamp(0, 255)
    return x.permute(1, 2, 3, 0).to(torch.uint8)


def video_tensors(name, decoded, frames):
    return {f"{name}.video": to_bytes(decoded[:, frames]).half(), f"{name}.video_frames": torch.tensor(frames)}


def run_tensors(name, run, whole):
    tensors = {f"{name}.timesteps": run["timesteps"], f"{name}.latents": run["latents"]}
    if whole:
        tensors[f"{name}.noise"] = run["noise"]
        frames = chosen(run["noise"].shape[1])[1:]
        tensors[f"{name}.latents_after_step"] = run["latents_after_step"][:, :, frames]
        tensors[f"{name}.latents_frames"] = torch.tensor(frames)
        tensors[f"{name}.first_output"] = run["first_output"][:, :, frames]
    return tensors


def call_tensors(name, x, timestep, rows, output):
    frames = chosen(x.shape[2])
    return {f"{name}.latents": x, f"{name}.timestep": timestep, f"{name}.texts": torch.tensor(rows),
            f"{name}.frames": torch.tensor(frames), f"{name}.output": output[:, :, frames]}


def drawn(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def transformer_v1_0(stdit, kind, folder, frames=None):
    """STDiT with the weights of the folder. Its position tables are computed by the constructor, not loaded."""
    size = kind["transformer"]["input_size"]
    model = stdit.STDiT(**{**kind["transformer"], "input_size": [frames or size[0], *size[1:]]}).eval()
    tables = {"pos_embed", "pos_embed_temporal"}
    tensors = {k: v for k, v in weights_of(folder / "transformer").items() if k not in tables}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) == tables and not unexpected
    return model


def reference_wide(kind, folder, release):
    """Both guidance branches for one caption. Latents are drawn from a seed and not stored."""
    (stdit,) = opensora_release.load(release, ["models.stdit.stdit"])
    model = transformer_v1_0(stdit, kind, folder)
    z = drawn((1, 4, *model.input_size), kind["latents_seed"])
    caption = drawn((1, 1, kind["max_length"], kind["transformer"]["caption_channels"]), 5)
    mask = (torch.arange(kind["max_length"]) < 7)[None].long()
    y = torch.cat([caption, model.y_embedder.y_embedding[None, None]])
    output = model(torch.cat([z, z]), torch.full((2,), 302), y, mask=mask)
    frames = [7]
    return ({"latents_starts": z.flatten()[:16], "timestep": torch.tensor([302.0]), "embeddings": caption[0, 0],
            "mask": mask[0], "frames": torch.tensor(frames), "output": output[:, :, frames]},)


def reference_v1_0(kind, folder, release):
    stdit, t5, vaes, iddpm = opensora_release.load(
        release, ["models.stdit.stdit", "models.text_encoder.t5", "models.vae.vae", "schedulers.iddpm"])

    model = transformer_v1_0(stdit, kind, folder)
    encoder = text_encoder_of(t5, folder, kind, model.y_embedder)
    vae = vaes.VideoAutoencoderKL(folder / "vae").eval().float()
    tensors = text_results(encoder, PROMPTS, [encoder.t5.text_preprocessing(t) for t in PROMPTS])
    tensors["positions.space"], tensors["positions.time"] = model.pos_embed[0], model.pos_embed_temporal[0]

    def call(name, model, rows, timestep, seed):
        """One call with both guidance branches, the conditional one first, as in the sampler."""
        x = drawn((len(rows), 4, *model.input_size), seed)
        text = encoder.encode([PROMPTS[i] for i in rows])
        y = torch.cat([text["y"], encoder.null(len(rows))])
        t = torch.full((2 * len(rows),), timestep)
        output = model(torch.cat([x, x]), t, y, mask=text["mask"])
        tensors.update(call_tensors(name, x, torch.tensor([float(timestep)]), rows, output))

    call("batch", model, [1, 2], 661, 1)
    call("fewer_frames", transformer_v1_0(stdit, kind, folder, kind["other_frames"]), [0], 10, 2)

    shape = (4, *kind["transformer"]["input_size"])
    runs = []
    for i, clip in enumerate(kind["clips"]):
        scheduler = iddpm.IDDPM(**{**kind["scheduler"], "num_sampling_steps": clip["steps"]})
        recorder, run = Recorder(model), {}
        torch.manual_seed(clip["seed"])
        final = scheduler.sample(recorder, encoder, shape, [PROMPTS[clip["prompt"]]], "cpu")
        torch.manual_seed(clip["seed"])
        z = torch.randn(1, *shape)
        record_steps(run, recorder, z, final)
        step_noise = torch.stack([torch.randn(2, *shape)[0].flatten()[:4] for _ in range(clip["steps"])])
        tensors.update(run_tensors(f"clip{i}", run, whole=i == 0))
        tensors[f"clip{i}.step_noise_starts"] = step_noise
        runs.append(run)
    decoded = vae.decode(runs[0]["latents"][None])[0]
    tensors.update(video_tensors("clip0", decoded, [shape[1] - 1]))
    z = drawn((1, 4, 2, 5, 3), 3)
    tensors["vae.latents"], tensors["vae.decoded"] = z[0], vae.decode(z)[0]
    return tensors, runs, decoded


def pixels_of(kind):
    return dict(image_size=(kind["height"], kind["width"]), num_frames=kind["num_frames"], fps=kind["fps"])


def reference_v1_2(kind, folder, release):
    stdit, t5, vaes, temporal, rf, scripts = opensora_release.load(
        release, ["models.stdit.stdit3", "models.text_encoder.t5", "models.vae.vae", "models.vae.vae_temporal",
                  "schedulers.rf", "utils.inference_utils"])
    model = stdit.STDiT3(stdit.STDiT3Config(**kind["transformer"])).eval()
    model.load_state_dict(weights_of(folder / "transformer"))
    encoder = text_encoder_of(t5, folder, kind, model.y_embedder)
    vae = video_vae(kind, folder, vaes)
    texts = [t5.text_preprocessing(t) for t in scripts.append_score_to_prompts(PROMPTS, aes=kind["aes"])]
    tensors = text_results(encoder, texts, texts)

    def conditions(count, **other):
        return scripts.prepare_multi_resolution_info(
            "STDiT2", count, **{**pixels_of(kind), **other}, device="cpu", dtype=torch.float32)

    def call(name, rows, timestep, latent_size, seed, **other):
        x = drawn((len(rows), 4, *latent_size), seed)
        text = encoder.encode([texts[i] for i in rows])
        y = torch.cat([text["y"], encoder.null(len(rows))])
        t = torch.full((2 * len(rows),), timestep)
        output = model(torch.cat([x, x]), t, y, mask=text["mask"], **conditions(len(rows), **other))
        tensors.update(call_tensors(name, x, torch.tensor([timestep]), rows, output))

    size = vae.get_latent_size([kind["num_frames"], kind["height"], kind["width"]])
    call("batch", [1, 2], 731.5, size, 1)
    call("more_frames", [0], 12.25, (16, 8, 12), 2, image_size=(64, 96))
    grid = [-(-n // 2) for n in size[1:]]
    scale = (kind["height"] * kind["width"])**0.5 / kind["transformer"]["input_sq_size"]
    tensors["positions.space"] = model.pos_embed(
        torch.zeros(1), *grid, scale=scale, base_size=round((grid[0] * grid[1])**0.5))[0]

    runs = []
    for i, clip in enumerate(kind["clips"]):
        scheduler = rf.RFLOW(**{**kind["scheduler"], "num_sampling_steps": clip["steps"]})
        recorder, run = Recorder(model), {}
        torch.manual_seed(clip["seed"])
        z = torch.randn(1, vae.out_channels, *size)
        mask = scripts.apply_mask_strategy(z, [[]], [""], 0)
        assert mask.eq(1).all()  # no frame is fixed: as without a mask, but noise is drawn in every step
        final = scheduler.sample(
            recorder, encoder, z=z, prompts=[texts[clip["prompt"]]], device="cpu", additional_args=conditions(1),
            progress=False, mask=mask)
        plain = scheduler.sample(
            model, encoder, z=z, prompts=[texts[clip["prompt"]]], device="cpu", additional_args=conditions(1),
            progress=False)
        assert torch.equal(final, plain)
        record_steps(run, recorder, z, final)
        tensors.update(run_tensors(f"clip{i}", run, whole=i == 0))
        runs.append(run)
    decoded = vae.decode(runs[0]["latents"][None], num_frames=kind["num_frames"])[0]
    tensors.update(video_tensors("clip0", decoded, [kind["num_frames"] - 1]))
    for count in (1, 25, 26):  # an image; a last group of 8 frames, none of which is dropped; a last group of 9
        latent_frames = vae.get_latent_size([count, 16, 24])[0]
        z = drawn((1, 4, latent_frames, 2, 3), 300 + count)
        frames = [f for f in (0, 1, 16, 17, count - 1) if f < count]
        frames = sorted(set(frames))
        tensors[f"vae{count}.latents"] = z[0]
        tensors[f"vae{count}.frames"] = torch.tensor(frames)
        tensors[f"vae{count}.decoded"] = vae.decode(z, num_frames=count)[0][:, frames]
    tensors["temporal.latents"] = drawn((1, 4, 5, 3, 5), 4)[0]  # one group, without shift and scale
    tensors["temporal.decoded"] = vae.temporal_vae.decode(tensors["temporal.latents"][None], num_frames=17)[0]
    return tensors, runs, decoded


def video_vae(kind, folder, vaes):
    """Open-Sora's pipeline of spatial and temporal VAE, with the tiny ones of this folder."""
    config = json.loads((folder / "vae" / "config.json").read_text())

    class TinySpatial(vaes.VideoAutoencoderKL):
        def __init__(self, micro_batch_size):
            torch.nn.Module.__init__(self)
            self.module = diffusers.AutoencoderKL.from_config(config["vae_2d"])
            self.out_channels, self.patch_size = self.module.config.latent_channels, (1, 8, 8)
            self.micro_batch_size = micro_batch_size

    vaes.MODELS.table["TinySpatial"] = TinySpatial
    vae = vaes.VideoAutoencoderPipeline(vaes.VideoAutoencoderPipelineConfig(
        vae_2d=dict(type="TinySpatial", micro_batch_size=kind["micro_batch_size"]),
        vae_temporal=dict(type="VAE_Temporal", **config["vae_temporal"]), micro_frame_size=kind["micro_frame_size"],
        shift=kind["shift"], scale=kind["scale"])).eval()
    vae.load_state_dict(weights_of(folder / "vae"))
    return vae


# ------------------------------------------------------------------------------------------------


def describe(kind):
    about = {"texts": PROMPTS} if "clips" in kind else {}
    shown = ("max_length", "latents_seed", "clips", "height", "width", "num_frames", "fps", "aes")
    about.update({k: kind[k] for k in shown if k in kind})
    if "scheduler" in kind:
        about["guidance"] = kind["scheduler"]["cfg_scale"]
    about["made_with"] = {m.__name__: m.__version__.split("+")[0]
                          for m in (torch, diffusers, transformers, sentencepiece)}
    return about


def stored(tensor):
    return (tensor if tensor.dtype == torch.float16 else tensor.float()).contiguous().clone()


def summary(name, tensors, runs=None, decoded=None):
    """Prints figures to be checked by eye: equal branches or a saturated video would hide errors."""
    cond, null = runs[0]["first_output"] if runs else tensors["output"]
    print(f"{name}: first output rms {cond.square().mean().sqrt():.2f}, "
          f"cond - null rms {(cond - null).square().mean().sqrt():.2f}, "
          f"variance channels {cond[4:].min():.2f} to {cond[4:].max():.2f}")
    for i, run in enumerate(runs or []):
        rms = [round(float(x.square().mean().sqrt()), 2) for x in run["latents_after_step"]]
        print(f"  clip{i}: rms of the latents {rms[0]} .. {rms[len(rms) // 2]} .. {rms[-1]}, "
              f"timesteps {[round(float(t), 3) for t in run['timesteps'][:3]]} .. {float(run['timesteps'][-1]):.3f}")
    if decoded is not None:
        levels = to_bytes(decoded).float()
        print(f"  video mean {levels.mean():.0f} std {levels.std():.0f}, in time {levels.std(0).mean():.1f}, "
              f"at 0 or 255: {float(((levels == 0) | (levels == 255)).float().mean()):.3f}")
    for key in sorted(tensors):
        print(f"  {key} {list(tensors[key].shape)}")


def given_options(description):
    root = Path(__file__).resolve().parents[2]
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--v1-0", type=Path, required=True, help="checkout of Open-Sora v1.0.0")
    options.add_argument("--v1-2", type=Path, required=True, help="checkout of Open-Sora v1.2.0")
    options.add_argument("--out", type=Path, default=root / "tests/data/opensora", help="folder to write into")
    return options.parse_args()


def prepare_libraries():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    diffusers.logging.set_verbosity_error()


def main():
    options = given_options(__doc__)
    prepare_libraries()
    errors = {}
    for name, release, make, reference in [("v1_0", options.v1_0, make_v1_0, reference_v1_0),
                                           ("v1_0_wide", options.v1_0, make_wide, reference_wide),
                                           ("v1_2", options.v1_2, make_v1_2, reference_v1_2)]:
        kind, folder = KINDS[name], options.out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(kind, folder, release)
        tensors, *shown = reference(kind, folder, release)
        save_file({k: stored(v) for k, v in tensors.items()}, folder / "reference.safetensors")
        write_json(folder / "reference.json", describe(kind))
        for path in folder.rglob("*.safetensors"):
            path.chmod(0o644)
        summary(name, tensors, *shown)
        if name == "v1_0":
            errors[name] = errors_v1_0(kind, folder, release, tensors)
        if name == "v1_2":
            errors[name] = errors_v1_2(kind, folder, release, tensors, video_vae)
    write_json(options.out / "bf16_errors.json", errors)
    (t5,) = opensora_release.load(options.v1_2, ["models.text_encoder.t5"])
    write_json(options.out / "caption_cleaning.json", cleaned_captions(t5))


if __name__ == "__main__":
    main()

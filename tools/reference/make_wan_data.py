#!/usr/bin/env python3
"""Makes tests/data/wan: tiny transformers and autoencoders of Wan 2.1 and TI2V-5B and the results of diffusers' classes.

Each kind (float32, bfloat16, ti2v) becomes a folder with transformer/ and vae/ as save_pretrained writes them, with random
weights. reference.safetensors in the same folder has the results of WanTransformer3DModel and AutoencoderKLWan in
float32 on the CPU, with the stored weights converted to float32; bf16_errors.json has the errors of PyTorch's bfloat16
against them. tests/data/wan/README.md describes the tensors.

To run it again:
    pip install "torch==2.15.*" "diffusers==0.36.*" "transformers<5" accelerate safetensors
    python tools/reference/make_wan_data.py                 # into tests/data/wan
    python tools/reference/make_wan_data.py --out /tmp/again --kinds float32

Everything is seeded and runs on one thread, so that a second run writes the same bytes. With another PyTorch version or
another kind of CPU the last bits may differ.
"""
import argparse
import json
import math
import shutil
from pathlib import Path

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from safetensors.torch import save_file

BRANCHES, TEXT_ROWS = 2, 512
KINDS = {
    # 3 heads of 20 channels: 8 for the frame, 6 for the row, 6 for the column. 75 tokens, 3 rows of them.
    "float32": dict(
        seed=5, dtype=torch.float32, shards=None, latents=(5, 6, 10), timesteps=[999, 437], text=[11, 4],
        transformer=dict(num_attention_heads=3, attention_head_dim=20, in_channels=5, out_channels=5, text_dim=24,
                         freq_dim=32, ffn_dim=70, num_layers=2),
        vae=dict(base_dim=6, z_dim=5, num_res_blocks=2), decoded=(1, 2, 5), encoded=(1, 8, 17)),
    # 4 heads of 16 channels (8, 4, 4) in shards; patches are not square.
    "bfloat16": dict(
        seed=6, dtype=torch.bfloat16, shards="150KB", latents=(3, 9, 8), timesteps=[922, 249], text=[1, 20],
        transformer=dict(num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=4, text_dim=16,
                         freq_dim=64, ffn_dim=96, num_layers=3, patch_size=(1, 3, 2)),
        vae=dict(base_dim=8, z_dim=4, num_res_blocks=1), decoded=(3,), encoded=(5,)),
    # As Wan 2.2's TI2V-5B: the tokens of frame 0 have timestep 0; the autoencoder has patches and shortcuts, of which
    # one between blocks of equal size averages channels.
    "ti2v": dict(
        seed=7, dtype=torch.bfloat16, shards=None, latents=(3, 4, 6), timesteps=[999, 437], text=[7, 3], frame_0=0,
        transformer=dict(num_attention_heads=3, attention_head_dim=20, in_channels=6, out_channels=6, text_dim=24,
                         freq_dim=32, ffn_dim=70, num_layers=2),
        vae=dict(base_dim=4, decoder_base_dim=6, z_dim=6, num_res_blocks=1, dim_mult=[1, 2, 4, 2], is_residual=True,
                 in_channels=12, out_channels=12, patch_size=2, scale_factor_spatial=16),
        cells=(2, 3), decoded=(1, 3), encoded=(1, 9)),
}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def fill(module, generator):
    """Draws all parameters in the order of their names, such that activations are of order one."""
    for name, p in sorted(module.named_parameters()):
        mean, deviation = 0.0, 1 / math.sqrt(math.prod(p.shape[1:])) if p.ndim > 1 else 0.1
        if name.endswith("gamma") or "norm" in name and name.endswith("weight"):
            mean, deviation = 1.0, 0.1
        if name.endswith("scale_shift_table"):
            deviation = 0.3
        if name.startswith("decoder.conv_out"):
            deviation *= 0.8  # a few pixels are saturated
        p.copy_(mean + deviation * torch.randn(p.shape, generator=generator))
    return module.eval()


def made(kind, folder):
    """Writes the parts of a kind → the generator that drew them."""
    generator = torch.Generator().manual_seed(kind["seed"])
    z = kind["vae"]["z_dim"]
    latents_mean = [round(x, 4) for x in torch.randn(z, generator=generator).mul(0.5).tolist()]
    latents_std = [round(x, 4) for x in torch.rand(z, generator=generator).add(0.6).tolist()]
    parts = dict(
        transformer=WanTransformer3DModel(**kind["transformer"]),
        vae=AutoencoderKLWan(**kind["vae"], latents_mean=latents_mean, latents_std=latents_std))
    for name, part in parts.items():
        more = dict(max_shard_size=kind["shards"]) if kind["shards"] and name == "transformer" else {}
        fill(part, generator).to(kind["dtype"]).save_pretrained(folder / name, **more)
    return generator


def reopened(folder, dtype):
    return (WanTransformer3DModel.from_pretrained(folder / "transformer", torch_dtype=dtype).eval(),
            AutoencoderKLWan.from_pretrained(folder / "vae", torch_dtype=dtype).eval())


def frames_first(x):
    """[channel, frame, …] → [frame, channel, …]"""
    return x.transpose(0, 1).contiguous()


def timesteps_of(timestep, latents, patch, frame_0):
    """[branch], or [branch, token] if the tokens of frame 0 have timestep `frame_0`; latents: [frame, channel, …]."""
    if frame_0 is None:
        return timestep.expand(BRANCHES)
    frames, _, rows, columns = latents.shape
    tokens = timestep.repeat(frames, rows // patch[1] * (columns // patch[2]))
    tokens[0] = frame_0
    return tokens.flatten().expand(BRANCHES, -1)


def transformer_results(model, inputs, dtype, frame_0):
    """[call, branch, frame, channel, row, column]"""
    results = []
    for latents, timestep in zip(inputs["transformer.latents"], inputs["transformer.timesteps"].long()):
        x = latents.transpose(0, 1)[None].expand(BRANCHES, -1, -1, -1, -1).to(dtype)
        text = torch.zeros(BRANCHES, TEXT_ROWS, inputs["transformer.text"].shape[2])
        text[:, :len(inputs["transformer.text"])] = inputs["transformer.text"].transpose(0, 1)
        timesteps = timesteps_of(timestep, latents, model.config.patch_size, frame_0)
        out = model(x, timesteps, text.to(dtype), return_dict=False)[0]
        results.append(torch.stack([frames_first(branch.float()) for branch in out]))
    return torch.stack(results)


def embedding_changes(model, timesteps):
    """For each timestep mean |e − e′| / mean |e′| of its embedding e and the one before, as TeaCache has them."""
    condition = model.condition_embedder
    e = condition.time_embedder(condition.timesteps_proj(timesteps))
    changes = [((now - before).abs().mean() / before.abs().mean()).item() for before, now in zip(e, e[1:])]
    return torch.tensor([0.0] + changes)


def decoded(vae, latents, dtype):
    """latents [frame, channel, row, column] as a sampler leaves them → [frame, row, column, 3], as WanPipeline"""
    channels = (1, -1, 1, 1, 1)
    mean = torch.tensor(vae.config.latents_mean).view(channels)
    inverse = 1.0 / torch.tensor(vae.config.latents_std).view(channels)
    z = latents.transpose(0, 1)[None] / inverse + mean
    return vae.decode(z.to(dtype), return_dict=False)[0][0].float().permute(1, 2, 3, 0).contiguous()


def encoded(vae, pixels, dtype):
    """pixels: 0 to 255, [frame, row, column, 3] → mean and log of the variance [frame, 2·channel, row, column]"""
    x = 2 * (pixels.float() / 255) - 1
    moments = vae.encode(x.permute(3, 0, 1, 2)[None].to(dtype)).latent_dist.parameters
    return frames_first(moments[0].float())


def errors(found, expected):
    return dict(rms=((found - expected).square().mean().sqrt() / expected.abs().max()).item())


def make(name, kind, out):
    folder = out / name
    for part in ("transformer", "vae"):
        shutil.rmtree(folder / part, ignore_errors=True)
    generator = made(kind, folder)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    frames, rows, columns = kind["latents"]
    cells = kind.get("cells", (3, 5))
    side = kind["vae"].get("scale_factor_spatial", 8)
    z, channels = kind["vae"]["z_dim"], kind["transformer"]["text_dim"]
    text = draw(max(kind["text"]), BRANCHES, channels)
    for branch, count in enumerate(kind["text"]):
        text[count:, branch] = 0
    tensors = {
        "transformer.latents": draw(len(kind["timesteps"]), frames, z, rows, columns),
        "transformer.timesteps": torch.tensor(kind["timesteps"], dtype=torch.float32),
        "transformer.text": text,
        "cache.timesteps": torch.tensor([999, 963, 922, 874, 817, 749, 428.5, 24.25]),
    }
    for count in kind["decoded"]:
        tensors[f"decoder.latents_{count}"] = draw(count, z, *cells)
    for count in kind["encoded"]:
        pixels = torch.randint(0, 256, (count, side * cells[0], side * cells[1], 3), generator=generator)
        tensors[f"encoder.pixels_{count}"] = pixels.to(torch.float16)  # which holds them exactly
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        transformer, vae = reopened(folder, dtype)
        results = {"transformer.output": transformer_results(transformer, tensors, dtype, kind.get("frame_0"))}
        for count in kind["decoded"]:
            results[f"decoder.frames_{count}"] = decoded(vae, tensors[f"decoder.latents_{count}"], dtype)
        for count in kind["encoded"]:
            results[f"encoder.moments_{count}"] = encoded(vae, tensors[f"encoder.pixels_{count}"], dtype)
        found[dtype] = results
    expected = found[torch.float32]
    changes = embedding_changes(reopened(folder, torch.float32)[0], tensors["cache.timesteps"])
    print(name, {key: f"{value.abs().mean().item():.2f} to {value.abs().max().item():.2f}"
                 for key, value in expected.items()})
    save_file(tensors | expected | {"cache.changes": changes}, folder / "reference.safetensors")
    return {key: errors(value, expected[key]) for key, value in found[torch.bfloat16].items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "tests" / "data" / "wan")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        found = {name: make(name, KINDS[name], arguments.out) for name in arguments.kinds}
    path = arguments.out / "bf16_errors.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    write_json(path, known | found)


if __name__ == "__main__":
    main()

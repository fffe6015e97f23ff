"""Makes the checkpoints of make_opensora_data.py: model folders with random weights."""
import json

import diffusers
import torch
import transformers
from safetensors.torch import load_file, save_file

import opensora_release
from make_cogvideox_data import fill, train_tokenizer, write_json


def fill_transformer(model, seed):
    """Random weights with which the prompt, all gates and the learned variance affect the result.

    An untrained model does not keep the latents small, and errors in its prediction are amplified in every step, by
    the division by the square root of the signal's share and by guidance. In 1.0 the prediction (except the variance)
    is therefore made small; otherwise the last bit of the initial noise would change the result by per cents. In 1.2
    the prediction contains a part of the latents themselves, by the pseudo-inverse of the patch embedding.
    """
    diffusion = hasattr(model, "blocks")
    fill(model, seed, {"x_embedder": 3.0, "t_block": 0.7, "fps_embedder.mlp.2": 0.7, "cross_attn.proj": 0.5,
                       ".qkv.w": 1.5, "q_linear.w": 2.0, "final_layer.linear": 0.05 if diffusion else 0.25})
    generator = torch.Generator().manual_seed(seed + 1)
    model.y_embedder.y_embedding.copy_(torch.randn(model.y_embedder.y_embedding.shape, generator=generator))
    answer = model.final_layer.linear.weight.view(2, 2, 8, -1)  # [row, column, channel, hidden]
    if diffusion:
        answer[:, :, 4:] *= 5.0
        return model
    for name, p in sorted(model.named_parameters()):
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            p.mul_(1.4)
    patch = model.x_embedder.proj.weight[:, :, 0]  # [hidden, channel, row, column]
    back = torch.linalg.pinv(patch.flatten(1)).view(4, 2, 2, -1) * patch.square().sum((1, 2, 3)).mean().sqrt()
    answer[:, :, :4] -= 0.3 * back.permute(1, 2, 0, 3)
    return model


def make_text_parts(kind, folder):
    train_tokenizer(folder / "trained.model", "identity")
    tokenizer = transformers.T5Tokenizer(
        str(folder / "trained.model"), legacy=True, extra_ids=100, model_max_length=kind["max_length"])
    (folder / "trained.model").unlink()
    config = transformers.T5Config(
        vocab_size=-(-len(tokenizer) // 32) * 32, d_model=32, d_kv=8, num_heads=4, d_ff=56, num_layers=2,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0)
    text_encoder = fill(transformers.T5EncoderModel(config), kind["seed"], {".q.": 0.5, ".wo.": 1.3})
    tokenizer.save_pretrained(folder / "tokenizer")
    for path in (folder / "tokenizer").glob("*.json"):  # saves space: the same JSON on one line
        path.write_text(json.dumps(json.loads(path.read_text())) + "\n")
    text_encoder.to(kind["dtype"]).save_pretrained(folder / "text_encoder")


def make_spatial_vae(kind):
    return fill(diffusers.AutoencoderKL(**kind["vae"]), kind["seed"] + 3, {"decoder.conv_out": 0.45})


EXACT = ("rope.freqs", "shift", "scale")  # constants kept in float32, so that they equal the formula or the config


def save_part(folder, config, tensors, dtype):
    folder.mkdir()
    name = "diffusion_pytorch_model.safetensors"
    tensors = {k: v.detach().to(torch.float32 if k in EXACT else dtype).contiguous() for k, v in tensors.items()}
    save_file(tensors, folder / name, metadata={"format": "pt"})
    write_json(folder / "config.json", config)


def write_index(folder, transformer, scheduler, scheduler_config, vae):
    write_json(folder / "scheduler" / "scheduler_config.json", {"_class_name": scheduler, **scheduler_config})
    write_json(folder / "model_index.json", {
        "_class_name": "OpenSoraPipeline", "scheduler": ["opensora", scheduler],
        "text_encoder": ["transformers", "T5EncoderModel"], "tokenizer": ["transformers", "T5Tokenizer"],
        "transformer": ["opensora", transformer], "vae": vae})


OLD_ATTENTION = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}


def old_attention_names(tensors):
    """Renames attention tensors as in the released sd-vae-ft-ema."""
    renamed = {}
    for name, tensor in tensors.items():
        for new, old in OLD_ATTENTION.items():
            if ".attentions." in name:
                name = name.replace(f".{new}.", f".{old}.")
        renamed[name] = tensor
    return renamed


def make_v1_0(kind, folder, release):
    (stdit,) = opensora_release.load(release, ["models.stdit.stdit"])
    model = fill_transformer(stdit.STDiT(**kind["transformer"]), kind["seed"] + 1)
    make_text_parts(kind, folder)
    save_part(folder / "transformer", {"_class_name": "STDiT", **kind["transformer"]}, model.state_dict(),
              kind["dtype"])
    vae = make_spatial_vae(kind).to(kind["dtype"])
    vae.save_pretrained(folder / "vae")
    weights = folder / "vae" / "diffusion_pytorch_model.safetensors"
    save_file(old_attention_names(load_file(weights)), weights, metadata={"format": "pt"})
    (folder / "scheduler").mkdir()
    write_index(folder, "STDiT", "IDDPM", kind["scheduler"], ["diffusers", "AutoencoderKL"])


def make_wide(kind, folder, release):
    """Makes a folder with only a transformer."""
    (stdit,) = opensora_release.load(release, ["models.stdit.stdit"])
    model = fill_transformer(stdit.STDiT(**kind["transformer"]), kind["seed"] + 1)
    tables = ("pos_embed", "pos_embed_temporal")
    tensors = {k: v for k, v in model.state_dict().items() if k not in tables}
    save_part(folder / "transformer", {"_class_name": "STDiT", **kind["transformer"]}, tensors, kind["dtype"])


def make_v1_2(kind, folder, release):
    stdit, temporal = opensora_release.load(release, ["models.stdit.stdit3", "models.vae.vae_temporal"])
    model = fill_transformer(stdit.STDiT3(stdit.STDiT3Config(**kind["transformer"])), kind["seed"] + 1)
    make_text_parts(kind, folder)
    save_part(folder / "transformer", {"_class_name": "STDiT3", **kind["transformer"]}, model.state_dict(),
              kind["dtype"])
    spatial = make_spatial_vae(kind)
    in_time = fill(temporal.VAE_Temporal(**kind["temporal_vae"]), kind["seed"] + 4,
                   {"decoder.conv_out": 0.8, "encoder": 0.5})
    tensors = {"spatial_vae.module." + k: v for k, v in spatial.state_dict().items()}
    tensors.update({"temporal_vae." + k: v for k, v in in_time.state_dict().items()})
    tensors.update({k: torch.tensor(kind[k])[None, :, None, None, None] for k in ("shift", "scale")})
    config = {"_class_name": "OpenSoraVAE_V1_2", "micro_frame_size": kind["micro_frame_size"],
              "micro_batch_size": kind["micro_batch_size"], "shift": kind["shift"], "scale": kind["scale"],
              "vae_2d": {k: v for k, v in spatial.config.items() if not k.startswith("_")},
              "vae_temporal": kind["temporal_vae"]}
    save_part(folder / "vae", config, tensors, kind["dtype"])
    (folder / "scheduler").mkdir()
    write_index(folder, "STDiT3", "RFLOW", kind["scheduler"], ["opensora", "OpenSoraVAE_V1_2"])


def weights_of(folder):
    return {k: v.float() for k, v in load_file(folder / "diffusion_pytorch_model.safetensors").items()}

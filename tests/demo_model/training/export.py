"""Exports the trained weights as a checkpoint folder in the layout of diffusers, in bfloat16."""
import json
import pathlib
import shutil

import torch
from diffusers import CogVideoXPipeline

from drawn_clips import scenes

from . import animator, denoiser, listener, loop, text, vae


def assemble(work):
    """diffusers' CogVideoXPipeline in float32 with the trained weights of the work folder."""
    work = pathlib.Path(work)
    autoencoder = vae.make(scenes.SIZE)
    for part, name in ((autoencoder.decoder, "decoder"), (autoencoder.encoder, "encoder")):
        if (work / f"{name}.pt").exists():
            _fill(part, work, name)
    tokenizer = text.load_vocabulary(work)
    text_encoder = text.make_encoder(tokenizer)
    text_encoder.load_state_dict(listener.encoder_weights(work))
    transformer = denoiser.make_transformer()
    _fill(transformer, work, "denoiser")
    return CogVideoXPipeline(
        tokenizer=tokenizer, text_encoder=text_encoder.eval(), vae=autoencoder.eval(),
        transformer=transformer.eval(), scheduler=denoiser.make_scheduler())


def _fill(module, work, name):
    stored, average = loop.weights(work, name)
    module.load_state_dict(stored)
    if average:
        for parameter, value in zip(module.parameters(), average):
            parameter.data = value.contiguous()


def write(work, target):
    """Writes the checkpoint folder `target`, keeping its card. Returns its size in bytes."""
    target = pathlib.Path(target)
    card = target / "MODEL_CARD.md"
    kept = card.read_text() if card.exists() else None
    shutil.rmtree(target, ignore_errors=True)
    pipeline = assemble(work)
    for module in (pipeline.text_encoder, pipeline.vae, pipeline.transformer):
        for parameter in module.parameters():
            parameter.data = parameter.data.contiguous()
    pipeline.to(torch.bfloat16).save_pretrained(target)
    if kept:
        card.write_text(kept)
    _plain_names(target)
    return sum(f.stat().st_size for f in target.rglob("*") if f.is_file())


def write_animator(work, target):
    """Writes the transformer of image to video into the folder `target`, which has only this part:
    the others are those of the checkpoint that it was trained with. Returns its size in bytes."""
    target = pathlib.Path(target)
    model = animator.make_transformer()
    _fill(model, pathlib.Path(work), "animator")
    model.to(torch.bfloat16).save_pretrained(target / "transformer")
    parts = {"scheduler": "CogVideoXDDIMScheduler", "text_encoder": "T5EncoderModel",
             "tokenizer": "T5Tokenizer", "transformer": "CogVideoXTransformer3DModel",
             "vae": "AutoencoderKLCogVideoX"}
    index = {"_class_name": "CogVideoXImageToVideoPipeline",
             **{name: ["transformers" if kind.startswith("T5") else "diffusers", kind]
                for name, kind in parts.items()}}
    (target / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
    _plain_names(target)
    return sum(f.stat().st_size for f in target.rglob("*") if f.is_file())


def _plain_names(target):
    """Removes paths of the machine on which the checkpoint was made from the configs."""
    for path in target.rglob("*.json"):
        config = json.loads(path.read_text())
        if isinstance(config, dict) and config.pop("_name_or_path", None) is not None:
            path.write_text(json.dumps(config, indent=2) + "\n")

#!/usr/bin/env python3
"""Converts the released files of Open-Sora 1.0 or 1.2 to a model folder for reelmesh.

    tools/convert_open_sora.py --release 1.0 --size 16x256x256 --out DIR \\
        --transformer OpenSora-v1-HQ-16x256x256.pth --text-encoder t5-v1_1-xxl --vae sd-vae-ft-ema
    tools/convert_open_sora.py --release 1.2 --out DIR \\
        --transformer OpenSora-STDiT-v3 --text-encoder t5-v1_1-xxl --vae OpenSora-VAE-v1.2

Reads safetensors and PyTorch files; the latter with weights_only=True, so that no code in a file is executed. Checks
name, shape and finiteness of every tensor; writes nothing before all names and shapes are known to be right. Needs
torch and safetensors.
"""
import argparse
import pathlib
import shutil
import sys

try:
    import torch
    from open_sora import shapes
    from open_sora.tensors import Refusal, open_tensors, read_json, write_json, write_tensors
except ImportError as missing:
    sys.stderr.write(f"{__doc__}\nconvert_open_sora: {missing}: pip install torch safetensors\n")
    sys.exit(69)

SIZES = {  # latents [frame, row, column] and scales of the position tables, from the released configs
    "16x256x256": dict(input_size=[16, 32, 32], space_scale=0.5, time_scale=1.0),
    "16x512x512": dict(input_size=[16, 64, 64], space_scale=1.0, time_scale=1.0),
    "64x512x512": dict(input_size=[64, 64, 64], space_scale=1.0, time_scale=2 / 3),
}
CLASSES = {"1.0": ("STDiT", "IDDPM", ["diffusers", "AutoencoderKL"]),
           "1.2": ("STDiT3", "RFLOW", ["opensora", "OpenSoraVAE_V1_2"])}
SCHEDULERS = {"1.0": dict(num_sampling_steps=100, cfg_scale=7.0),
              "1.2": dict(num_sampling_steps=30, cfg_scale=7.0, use_timestep_transform=True)}
VAE_NORMALIZATION = dict(shift=[-0.10, 0.34, 0.27, 0.98], scale=[3.85, 2.32, 2.33, 3.06])
ATTENTION = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}
TOKENIZER_FILES = ("spiece.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                   "added_tokens.json")
DTYPES = {"keep": None, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Part:
    """One folder of the result: its config and its tensors, whose names and shapes are checked."""

    def __init__(self, folder, stem, config, tensors, expected):
        tensors.check(expected)
        self.folder, self.stem, self.config, self.tensors = folder, stem, config, tensors


def config_beside(path):
    path = pathlib.Path(path)
    file = (path if path.is_dir() else path.parent) / "config.json"
    return read_json(file) if file.is_file() else {}


def whole(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20


def known_fields(defaults, *sources):
    """Fields of the constructor: the defaults, overridden by each source in turn; types are checked."""
    fields = dict(defaults)
    for source in sources:
        fields.update({k: v for k, v in source.items() if k in defaults})
    for name, default in defaults.items():
        found = fields[name]
        if whole(default) and not whole(found):
            raise Refusal(f"config: '{name}' is {found!r}, expected a whole number above zero")
        if isinstance(default, float) and (isinstance(found, bool) or not isinstance(found, (int, float))):
            raise Refusal(f"config: '{name}' is {found!r}, expected a number")
        if isinstance(default, bool) and not isinstance(found, bool):
            raise Refusal(f"config: '{name}' is {found!r}, expected true or false")
        if isinstance(default, list) and (not isinstance(found, list) or not found or
                                          any(type(f) is not type(d) and whole(d) for f, d in zip(found, default))):
            raise Refusal(f"config: '{name}' is {found!r}, expected a list like {default}")
    return fields


def transformer(options):
    class_name = CLASSES[options.release][0]
    own = config_beside(options.transformer) if options.release == "1.2" else {}
    if options.config:
        own = {**own, **read_json(options.config)}
    found = own.get("_class_name", (own.get("architectures") or [class_name])[0])
    if found != class_name:
        raise Refusal(f"{options.transformer}: config.json is of the class {found}, expected {class_name}")
    size = SIZES[options.size] if options.release == "1.0" and options.size else {}
    fields = known_fields(shapes.TRANSFORMER_FIELDS[class_name], own, size)
    tensors = open_tensors(options.transformer).renamed(lambda name: None if name in shapes.TABLES else name)
    config = {"_class_name": class_name, **fields}
    return Part("transformer", "diffusion_pytorch_model", config, tensors, shapes.transformer(class_name, fields))


def new_attention_names(name):
    """Maps the names of attention parts in older AutoencoderKL files to today's."""
    if ".attentions." not in name:
        return name
    layer, part, kind = name.rsplit(".", 2)
    return ".".join([layer, ATTENTION.get(part, part), kind])


def with_new_attention(tensors):
    """The tensors of an AutoencoderKL under today's names; attention stored as 1 x 1 convolutions becomes matrices."""
    result = tensors.renamed(new_attention_names)
    for name, shape in list(result.shapes.items()):
        if ".attentions." in name and len(shape) == 4 and shape[2:] == (1, 1):
            result.reshaped(name, shape[:2])
    return result


def image_vae(options):
    config = config_beside(options.vae)
    if config.get("_class_name") != "AutoencoderKL":
        raise Refusal(f"{options.vae}: config.json is of the class {config.get('_class_name')}, expected AutoencoderKL")
    defaults = {**shapes.SPATIAL_VAE_FIELDS, "sample_size": 256, "scaling_factor": 0.18215}
    switches = ("use_quant_conv", "use_post_quant_conv", "mid_block_add_attention")
    fields = known_fields({**defaults, **dict.fromkeys(switches, True)}, config)
    return Part("vae", "diffusion_pytorch_model", {"_class_name": "AutoencoderKL", **fields},
                with_new_attention(open_tensors(options.vae)), shapes.autoencoder_kl(fields))


def part_of(config, name):
    found = config.get(name) or {}
    if not isinstance(found, dict):
        raise Refusal(f"config: '{name}' is {found!r}, expected an object")
    return found


def video_vae(options):
    """The released config names the spatial VAE without its fields; they default to those of SDXL's VAE."""
    own = config_beside(options.vae)
    if own.get("model_type", "VideoAutoencoderPipeline") != "VideoAutoencoderPipeline":
        raise Refusal(f"{options.vae}: config.json is of the type {own['model_type']}, "
                      "expected VideoAutoencoderPipeline")
    spatial = known_fields(shapes.SPATIAL_VAE_FIELDS, part_of(own, "vae_2d"))
    temporal = known_fields(shapes.TEMPORAL_VAE_FIELDS, part_of(own, "vae_temporal"))
    config = {"_class_name": "OpenSoraVAE_V1_2", **known_fields(
        dict(micro_frame_size=17, micro_batch_size=4, **VAE_NORMALIZATION), own),
        "vae_2d": spatial, "vae_temporal": temporal}
    tensors = with_new_attention(open_tensors(options.vae))
    expected = shapes.Shapes()
    expected.update(shapes.autoencoder_kl(spatial).prefixed("spatial_vae.module."))
    expected.update(shapes.vae_temporal(temporal).prefixed("temporal_vae."))
    for name in VAE_NORMALIZATION:  # buffers that repeat values of the config, in the precision of the file
        expected[name] = (1, len(config[name]), 1, 1, 1)
    part = Part("vae", "diffusion_pytorch_model", config, tensors, expected)
    for name in VAE_NORMALIZATION:
        found = tensors.read(name).flatten().tolist()
        if any(abs(f - c) > 0.01 * abs(c) for f, c in zip(found, config[name])):
            raise Refusal(f"{options.vae}: tensor {name} is {found}, expected {config[name]} as in the config")
    part.tensors = tensors.renamed(lambda name: None if name in VAE_NORMALIZATION else name)
    return part


def text_encoder(options):
    config = read_json(pathlib.Path(options.text_encoder) / "config.json")
    if config.get("model_type") != "t5" or "gated" not in config.get("feed_forward_proj", ""):
        raise Refusal(f"{options.text_encoder}: config.json is not of T5 1.1 (model_type t5, gated feed_forward_proj)")
    for name in ("d_model", "d_kv", "d_ff", "num_heads", "num_layers", "vocab_size"):
        if not whole(config.get(name)):
            raise Refusal(f"{options.text_encoder}: '{name}' is {config.get(name)!r}, "
                          "expected a whole number above zero")
    unused = ("decoder.", "lm_head.", "encoder.embed_tokens.")  # embed_tokens repeats shared.weight
    tensors = open_tensors(options.text_encoder).renamed(lambda name: None if name.startswith(unused) else name)
    config["architectures"] = ["T5EncoderModel"]
    return Part("text_encoder", "model", config, tensors, shapes.t5_encoder(config))


def check_together(release, parts):
    fields, text, vae = (part.config for part in parts)
    if fields["caption_channels"] != text["d_model"]:
        raise Refusal(f"transformer: captions have {fields['caption_channels']} channels, "
                      f"but the text encoder gives {text['d_model']}")
    channels = vae["latent_channels"] if release == "1.0" else vae["vae_temporal"]["in_out_channels"]
    if fields["in_channels"] != channels:
        raise Refusal(f"transformer: latents have {fields['in_channels']} channels, "
                      f"but those of the VAE have {channels}")


def write(options, parts):
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = pathlib.Path(options.tokenizer or options.text_encoder)
    (options.out / "tokenizer").mkdir()
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, options.out / "tokenizer" / name)
    for part in parts:
        folder = options.out / part.folder
        folder.mkdir()
        size = write_tensors(folder, part.stem, part.tensors, DTYPES[options.dtype], options.shard_bytes)
        config = part.config
        if part.folder == "text_encoder" and options.dtype != "keep":
            config = {**config, "torch_dtype": options.dtype}
        write_json(folder / "config.json", config)
        print(f"{folder}: {len(part.tensors.shapes)} tensors, {size} bytes")
    class_name, scheduler, vae = CLASSES[options.release]
    (options.out / "scheduler").mkdir()
    write_json(options.out / "scheduler" / "scheduler_config.json",
               {"_class_name": scheduler, **SCHEDULERS[options.release]})
    write_json(options.out / "model_index.json", {  # last: a folder without it is incomplete
        "_class_name": "OpenSoraPipeline", "scheduler": ["opensora", scheduler],
        "text_encoder": ["transformers", "T5EncoderModel"], "tokenizer": ["transformers", "T5Tokenizer"],
        "transformer": ["opensora", class_name], "vae": vae})


def read_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", choices=list(CLASSES), required=True)
    parser.add_argument("--transformer", required=True, help="file, or folder with config.json and weights")
    parser.add_argument("--size", choices=list(SIZES), help="for 1.0: what the transformer was trained for")
    parser.add_argument("--config", help="JSON with fields of the transformer's constructor, for other trainings")
    parser.add_argument("--text-encoder", required=True, help="folder of T5 (config.json, weights)")
    parser.add_argument("--tokenizer", help="folder with spiece.model or tokenizer.json; default: the text encoder's")
    parser.add_argument("--vae", required=True, help="folder of the VAE (config.json, weights)")
    parser.add_argument("--dtype", choices=list(DTYPES), default="keep", help="of the weights in the result")
    parser.add_argument("--shard-bytes", type=int, default=5_000_000_000, help="limit of a weights file")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="new or empty folder")
    options = parser.parse_args(arguments)
    if options.release == "1.0" and not (options.size or options.config):
        parser.error("--release 1.0 needs --size or --config: its files do not say what size they are for")
    if options.release == "1.2" and options.size:
        parser.error("--size is for --release 1.0")
    if options.shard_bytes < 1:
        parser.error("--shard-bytes must be above zero")
    return options


def main(arguments=None):
    options = read_options(arguments)
    try:
        if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
            raise Refusal(f"{options.out}: exists and is not an empty folder")
        tokenizer = pathlib.Path(options.tokenizer or options.text_encoder)
        if not any((tokenizer / name).is_file() for name in ("spiece.model", "tokenizer.json")):
            raise Refusal(f"{tokenizer}: no spiece.model and no tokenizer.json; give --tokenizer")
        parts = [transformer(options), text_encoder(options),
                 image_vae(options) if options.release == "1.0" else video_vae(options)]
        check_together(options.release, parts)
        write(options, parts)
    except Refusal as refusal:
        sys.exit(f"convert_open_sora: {refusal}")
    print(f"{options.out}: complete")


if __name__ == "__main__":
    main()

"""Writes a clip in formats that other programs take. Arrays are read and written in blocks."""
import json
import struct

import numpy as np

from . import movie
from .clips import check
from .hdf5 import Damaged, attributes, dataset, opened, present, read
from .index import Index

LATENTS = ("latents", "prompt_embeds", "negative_prompt_embeds")  # tensors of a .safetensors
NUMBERS = {"float16": "F16", "float32": "F32", "float64": "F64"}  # its names of types
FACTS = ("seed", "steps", "guidance", "model", "scheduler", "dtype", "fingerprint", "image",
         "last_image",
         "video", "strength", "flow_shift", "noise_levels", "guidance_2")
BLOCK = 1 << 24  # bytes that are read and written at a time at least


def facts(path):
    """What a clip's file says about itself, as texts: 'prompt', 'seed', …"""
    with opened(path) as file:
        check(file)
        found = attributes(file)
    return {name: _short(found[name]) for name in ("prompt", "negative_prompt", *FACTS, "fps")
            if name in found}


def version(path):
    """{'reelmesh': version of the program} of the job.h5 at this path; {} if it does not say."""
    try:
        job = Index(path).attributes
        return {"reelmesh": f"{job['version']} ({job['git_revision']})"}
    except (Damaged, KeyError):
        return {}  # a clip alone has no version


def _short(value):
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def comment(known):
    return ", ".join(f"{name} {known[name]}" for name in (*FACTS, "reelmesh") if name in known)


def write_film(clip, known, path, quality, lossless):
    """MP4 (H.264) at the clip's own size, even sides; or Matroska with FFV1 in RGB, whose frames
    are the clip's bit for bit."""
    tags = {"title": known.get("prompt", ""), "comment": comment(known),
            **{name: text for name, text in known.items() if name != "prompt"}}
    if not lossless:
        # Names that QuickTime's own players look for.
        tags |= {f"com.apple.quicktime.{name}": tags[name] for name in ("title", "comment")}
    words = [word for name, text in tags.items() for word in ("-metadata", f"{name}={text}")]
    codec = movie.LOSSLESS if lossless else movie.h264(quality)
    movie.encode(clip, path, [*codec, *words], even=not lossless)


def write_frame(clip, known, index, path):
    from PIL import Image, PngImagePlugin
    texts = PngImagePlugin.PngInfo()
    for name, text in {"Title": known.get("prompt", ""), "Comment": comment(known),
                       "Software": f"reelmesh {known.get('reelmesh', '')}".strip(),
                       "frame": str(index), "time": f"{index / clip.fps:.6g} s",
                       **{name: text for name, text in known.items()
                          if name not in ("prompt", "reelmesh")}}.items():
        texts.add_itxt(name, text)
    Image.fromarray(clip.frame(index)).save(path, "PNG", pnginfo=texts)


def write_safetensors(file, known, path):
    """The format of Hugging Face's safetensors: the length of the header as 8 bytes, little endian;
    the header in JSON, padded with spaces to a multiple of 8 bytes; the values.
    https://github.com/huggingface/safetensors#format"""
    tensors = {name: dataset(file, name) for name in present(file, LATENTS)}
    header, end = {"__metadata__": {"format": "pt", **known}}, 0
    for name, array in tensors.items():
        begin, end = end, end + int(array.size) * array.dtype.itemsize
        if array.dtype.name not in NUMBERS:
            raise Damaged(f"{name} is {array.dtype}, expected float32")
        header[name] = {"dtype": NUMBERS[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as output:
        output.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            _write_values(array, output)


def write_npy(array, path):
    with path.open("wb") as output:
        np.lib.format.write_array_header_1_0(output, {
            "descr": np.lib.format.dtype_to_descr(array.dtype.newbyteorder("<")),
            "fortran_order": False, "shape": array.shape})
        _write_values(array, output)


def _write_values(array, output):
    row = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    step = max(1, BLOCK // max(1, row))
    for at in range(0, array.shape[0], step):
        block = read(array, slice(at, at + step))
        output.write(block.astype(block.dtype.newbyteorder("<"), copy=False).tobytes())

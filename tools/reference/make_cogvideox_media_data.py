#!/usr/bin/env python3
"""Makes tests/data/cogvideox/media: images, videos, and what the reference pipelines make of them.

The checkpoints are those of tests/data/cogvideox (make_cogvideox_data.py). Image to video and video
to video are diffusers' CogVideoXImageToVideoPipeline and CogVideoXVideoToVideoPipeline, in float32
on the CPU; the errors of PyTorch's bfloat16 against them are in reference.json.
tests/data/cogvideox/README.md describes the files.

To run it again (with ffmpeg):
    pip install "torch==2.15.*" "diffusers==0.36.*" "transformers<5" accelerate sentencepiece safetensors pillow
    python tools/reference/make_cogvideox_media_data.py                  # into tests/data/cogvideox/media

Everything is seeded and runs on one thread, so that a second run writes the same bytes. With another
version of a library or another kind of CPU the last bits may differ.
"""
import contextlib
import subprocess
from unittest import mock

import diffusers
import numpy as np
import PIL.Image
import torch
from diffusers.models.autoencoders import vae
from diffusers.pipelines.cogvideo import pipeline_cogvideox_image2video, pipeline_cogvideox_video2video
from diffusers.schedulers import scheduling_dpm_cogvideox
from diffusers.utils import load_image
from safetensors.torch import save_file

import cogvideox_kinds
from cogvideox_kinds import PROMPTS
from make_cogvideox_data import error, folders_given, prepare_libraries, to_bytes, write_json

KINDS = cogvideox_kinds.KINDS | cogvideox_kinds.IMAGE_KINDS

# One clip each. strength: of video to video. frames: of the clip, the first ones of the video.
CASES = {
    "i2v.resized": dict(kind="i2v", image="wide.png", prompt=1, negative=0, seed=42),
    "i2v.exact": dict(kind="i2v", image="exact.png", prompt=2, negative=0, seed=7),
    "i2v_1_5.photo": dict(kind="i2v_1_5", image="photo.jpg", prompt=1, negative=3, seed=42),
    "i2v_1_5.enlarged": dict(kind="i2v_1_5", image="small.png", prompt=2, negative=0, seed=7),
    "sincos.weak": dict(kind="sincos", video="exact.mkv", frames=9, strength=0.6, prompt=1, negative=0, seed=42),
    "sincos.strong": dict(kind="sincos", video="exact.mkv", frames=9, strength=0.8, prompt=2, negative=0, seed=7),
    "rotary.strong": dict(kind="rotary", video="long.mkv", frames=13, strength=0.8, prompt=2, negative=0, seed=42),
    "rotary.weak": dict(kind="rotary", video="long.mkv", frames=13, strength=0.6, prompt=4, negative=0, seed=7),
    "v1_5.strong": dict(kind="v1_5", video="long.mkv", frames=13, strength=0.8, prompt=1, negative=3, seed=42),
}

# ------------------------------------------------------------------------------------------------
# Images and videos


def picture(height, width, moved=0.0):
    """uint8 [row, column, 3]: a gradient, stripes, a disc and a square, all with sharp edges."""
    row, column = np.mgrid[0:height, 0:width].astype(np.float64)
    y, x = (row + 0.5) / height, (column + 0.5) / width
    pixels = np.stack([40 + 170 * x, 200 - 150 * y, 90 + 60 * np.sin(9 * x + 5 * y)], axis=-1)
    pixels[((row + column) // 5 % 4 == 0) & (y > 0.7)] = (235, 225, 40)
    disc = (y - 0.35) ** 2 + (x - 0.25 - 0.5 * moved) ** 2 < 0.03
    pixels[disc] = (220, 40, 50)
    square = (abs(y - 0.5 + 0.3 * moved) < 0.12) & (abs(x - 0.75) < 0.12)
    pixels[square] = (20, 60, 210)
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def write_video(path, frames, fps):
    """Lossless: FFV1 with RGB pixels, so that the decoded bytes are those of `frames`."""
    count, height, width, _ = frames.shape
    subprocess.run(
        ["ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}",
         "-r", str(fps), "-i", "-", "-c:v", "ffv1", "-level", "3", "-g", "1", "-slices", "4", "-threads", "1",
         "-pix_fmt", "bgr0", "-fflags", "+bitexact", "-flags:v", "+bitexact", str(path)],
        input=frames.tobytes(), check=True)
    assert np.array_equal(read_video(path, count), frames)


def read_video(path, count):
    """The first frames as ffmpeg decodes them: uint8 [frame, row, column, 3]."""
    size = subprocess.run(["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", "stream=width,height",
                           "-of", "csv=p=0", str(path)], capture_output=True, check=True, text=True).stdout
    width, height = map(int, size.strip().split(",")[:2])
    raw = subprocess.run(["ffmpeg", "-v", "error", "-i", str(path), "-frames:v", str(count), "-f", "rawvideo",
                          "-pix_fmt", "rgb24", "-"], capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def write_media(folder):
    PIL.Image.fromarray(picture(93, 157)).save(folder / "wide.png", optimize=True)
    PIL.Image.fromarray(picture(KINDS["i2v"]["height"], KINDS["i2v"]["width"])).save(
        folder / "exact.png", optimize=True)
    PIL.Image.fromarray(picture(29, 37)).save(folder / "small.png", optimize=True)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # stored lying on its side, shown after a quarter turn
    PIL.Image.fromarray(np.rot90(picture(140, 101)).copy()).save(folder / "photo.jpg", quality=90, exif=exif)
    write_video(folder / "exact.mkv", np.stack([picture(112, 80, i / 8) for i in range(9)]), 8)
    write_video(folder / "long.mkv", np.stack([picture(90, 64, i / 15) for i in range(16)]), 10)


# ------------------------------------------------------------------------------------------------
# Results of the reference pipelines


@contextlib.contextmanager
def noise_of_float32():
    """A bfloat16 pipeline draws other random values than a float32 one. Gives it the float32 noise, rounded."""
    draw = vae.randn_tensor

    def rounded(shape, generator=None, device=None, dtype=None, layout=None):
        return draw(shape, generator=generator, device=device, dtype=torch.float32).to(dtype)

    with contextlib.ExitStack() as stack:
        for module in (vae, pipeline_cogvideox_image2video, pipeline_cogvideox_video2video, scheduling_dpm_cogvideox):
            stack.enter_context(mock.patch.object(module, "randn_tensor", rounded))
        yield


def load(folder, case, dtype):
    name = "CogVideoXImageToVideoPipeline" if "image" in case else "CogVideoXVideoToVideoPipeline"
    pipeline = getattr(diffusers, name).from_pretrained(folder, torch_dtype=dtype)
    pipeline.set_progress_bar_config(disable=True)
    for part in (pipeline.text_encoder, pipeline.transformer, pipeline.vae):
        part.to(dtype).eval()
    return pipeline


def run(checkpoints, media, case, dtype):
    """Calls the pipeline. Returns the encoded input (scaled), the final latents, the frames, and the steps."""
    kind = KINDS[case["kind"]]
    pipeline = load(checkpoints / case["kind"], case, dtype)
    result = {"timesteps": []}
    if "image" in case:
        more = dict(image=load_image(str(media / case["image"])), num_frames=kind["num_frames"])
        prepare = pipeline.prepare_latents

        def prepared(*arguments, **named):
            latents, image = prepare(*arguments, **named)
            result["encoded"] = image[0, 0].clone()
            assert not image[0, 1:].any()
            return latents, image

        pipeline.prepare_latents = prepared
    else:
        frames = read_video(media / case["video"], case["frames"])
        more = dict(video=[PIL.Image.fromarray(f) for f in frames], strength=case["strength"])
        add = pipeline.scheduler.add_noise

        def added(original, noise, timesteps):
            result["encoded"] = original[0].clone()
            return add(original, noise, timesteps)

        pipeline.scheduler.add_noise = added

    def after_step(_, step, t, state):
        result["timesteps"].append(int(t))
        return {}

    with noise_of_float32() if dtype != torch.float32 else contextlib.nullcontext():
        latents = pipeline(
            prompt=PROMPTS[case["prompt"]], negative_prompt=PROMPTS[case["negative"]], height=kind["height"],
            width=kind["width"], num_inference_steps=kind["steps"], guidance_scale=kind["guidance"],
            use_dynamic_cfg=kind["dynamic"], generator=torch.Generator().manual_seed(case["seed"]),
            output_type="latent", callback_on_step_end=after_step, max_sequence_length=kind["max_length"],
            **more).frames
    count = case.get("frames", kind["num_frames"])
    padding = latents.shape[1] - ((count - 1) // 4 + 1)
    result["latents"] = latents[0, padding:]
    result["video"] = to_bytes(pipeline, pipeline.decode_latents(latents[:, padding:])[0])
    return result


def stored_frames(count, whole):
    return sorted({0, 1, 8, count - 1} if whole else {0, count - 1})


def summary(name, result):
    """Prints figures to be checked by eye: a saturated or grey video would hide errors."""
    levels, encoded = result["video"].float(), result["encoded"]
    print(f"{name}: steps {result['timesteps']}, encoded {list(encoded.shape)} mean {encoded.mean():.2f} "
          f"std {encoded.std():.2f} largest {encoded.abs().max():.2f}, latents {list(result['latents'].shape)} "
          f"largest {result['latents'].abs().max():.2f}, video {list(levels.shape)} mean {levels.mean():.1f} "
          f"std {levels.std():.1f}, at 0 or 255: {((levels == 0) | (levels == 255)).float().mean():.3f}")


def main():
    prepare_libraries()
    checkpoints, out = folders_given(__doc__, "media")
    write_media(out)
    tensors, facts = {}, {}
    for name, case in CASES.items():
        kind = KINDS[case["kind"]]
        result = run(checkpoints, out, case, torch.float32)
        summary(name, result)
        whole = name == next(n for n, c in CASES.items() if c["kind"] == case["kind"])
        chosen = stored_frames(len(result["video"]), whole)
        tensors[f"{name}.encoded"] = result["encoded"]
        tensors[f"{name}.latents"] = result["latents"]
        tensors[f"{name}.video"] = result["video"][chosen].to(torch.float16)  # exact
        again = run(checkpoints, out, case, torch.bfloat16)
        levels = (again["video"].double() - result["video"].double()).abs()
        facts[name] = case | {
            "prompt": PROMPTS[case["prompt"]], "negative_prompt": PROMPTS[case["negative"]],
            "frames": case.get("frames", kind["num_frames"]), "timesteps": result["timesteps"],
            "video_frames": chosen, "height": kind["height"], "width": kind["width"], "steps": kind["steps"],
            "guidance": kind["guidance"], "dynamic_guidance": kind["dynamic"],
            "bfloat16": {
                "encoded": error(again["encoded"], result["encoded"]),
                "latents": error(again["latents"], result["latents"]),
                "video_levels": {"max": float(levels.max()), "rms": float(levels.pow(2).mean().sqrt())}}}
        del facts[name]["negative"]
    for name, tensor in tensors.items():
        tensors[name] = tensor.contiguous().clone()
        assert torch.isfinite(tensors[name]).all(), name
    save_file(tensors, out / "reference.safetensors")
    (out / "reference.safetensors").chmod(0o644)
    write_json(out / "reference.json", facts)


if __name__ == "__main__":
    main()

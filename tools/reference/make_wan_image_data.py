#!/usr/bin/env python3
"""Makes tests/data/wan/image and ends: tiny models of Wan 2.1 for image to video, and clips of diffusers' pipeline.

`image` takes a first image, `ends` a first and a last one. Each has transformer/ as save_pretrained writes it, with
random weights, model_index.json and reference.safetensors; `image` also image_encoder/ and image_processor/, which both
use, and the images. Text encoder, tokenizer, autoencoder and scheduler are those of tests/data/wan/float32. Everything
is float32 on the CPU; bf16_errors.json gets the errors of PyTorch's bfloat16.

To run it again, with the packages of make_wan_pipeline_data.py and Pillow before version 13 (as make_media_data.py):
    python tools/reference/make_wan_image_data.py
"""
import json
import shutil
import sys
from pathlib import Path

import diffusers
import PIL
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file

from cogvideox_kinds import PROMPTS
from make_cogvideox_media_data import picture
from make_wan_data import errors, fill, frames_first, write_json

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "wan"
SHARED = FOLDER / "float32"
BRANCHES, TEXT_ROWS, HEADS, HEAD, LATENTS, VISION, PIXELS, PATCH = 2, 512, 3, 20, 5, 32, 28, 14
ROWS = 1 + (PIXELS // PATCH) ** 2
HEIGHT, WIDTH, KEPT_FRAMES = 48, 80, [0, 1, 4, -1]
FIRST, LAST = "first.png", "last.png"
IMAGES = {FIRST: (61, 131), LAST: (133, 62)}
KINDS = {
    "image": dict(seed=31, layers=2, positions=None, clips=[
        dict(prompt=PROMPTS[1], negative_prompt=PROMPTS[3], seed=42, steps=4, guidance=5.0, frames=9, image=FIRST),
        dict(prompt=PROMPTS[2], negative_prompt="", seed=7, steps=3, guidance=1.0, frames=5, image=LAST)]),
    "ends": dict(seed=32, layers=2, positions=2 * ROWS, clips=[
        dict(prompt=PROMPTS[4], negative_prompt="", seed=9, steps=4, guidance=3.5, frames=9, image=FIRST,
             last_image=LAST)]),
}


def write_image_parts(folder):
    config = transformers.CLIPVisionConfig(
        hidden_size=VISION, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, image_size=PIXELS,
        patch_size=PATCH, hidden_act="gelu", projection_dim=16)
    generator = torch.Generator().manual_seed(30)
    fill(transformers.CLIPVisionModel(config), generator).save_pretrained(folder / "image_encoder")
    transformers.CLIPImageProcessor(
        size={"shortest_edge": PIXELS}, crop_size={"height": PIXELS, "width": PIXELS}).save_pretrained(
            folder / "image_processor")
    for name, size in IMAGES.items():
        Image.fromarray(picture(*size)).save(folder / name, optimize=True)


def write_transformer(kind, folder):
    model = diffusers.WanTransformer3DModel(
        num_attention_heads=HEADS, attention_head_dim=HEAD, in_channels=2 * LATENTS + 4, out_channels=LATENTS,
        text_dim=24, freq_dim=32, ffn_dim=70, num_layers=kind["layers"], image_dim=VISION,
        added_kv_proj_dim=HEADS * HEAD, pos_embed_seq_len=kind["positions"])
    generator = torch.Generator().manual_seed(kind["seed"])
    fill(model, generator)
    if kind["positions"]:
        model.condition_embedder.image_embedder.pos_embed.normal_(0, 0.5, generator=generator)
    model.save_pretrained(folder / "transformer")
    return generator


def opened(folder, dtype=torch.float32):
    part = lambda maker, at, name: maker.from_pretrained(at / name, torch_dtype=dtype).eval()
    images = FOLDER / "image"
    pipeline = diffusers.WanImageToVideoPipeline(
        tokenizer=transformers.T5Tokenizer.from_pretrained(SHARED / "tokenizer"),
        text_encoder=part(transformers.UMT5EncoderModel, SHARED, "text_encoder"),
        image_encoder=part(transformers.CLIPVisionModel, images, "image_encoder"),
        image_processor=transformers.CLIPImageProcessor.from_pretrained(images / "image_processor"),
        transformer=part(diffusers.WanTransformer3DModel, folder, "transformer"),
        vae=part(diffusers.AutoencoderKLWan, SHARED, "vae"),
        scheduler=diffusers.UniPCMultistepScheduler.from_pretrained(SHARED / "scheduler"))
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def image_rows(pipeline, names):
    """Of these images, [row, channel]"""
    images = [Image.open(FOLDER / "image" / name) for name in names]
    return pipeline.encode_image(images, "cpu").flatten(0, 1)


def transformer_output(model, inputs, dtype):
    """[call, branch, frame, channel, row, column]"""
    text = torch.zeros(BRANCHES, TEXT_ROWS, 24)
    text[:, :len(inputs["transformer.text"])] = inputs["transformer.text"].transpose(0, 1)
    rows = inputs["transformer.image_rows"]
    rows = rows.view(-1, ROWS, VISION).repeat(BRANCHES, 1, 1).to(dtype)
    results = []
    for x, timestep in zip(inputs["transformer.latents"], inputs["transformer.timesteps"].long()):
        x = x.transpose(0, 1)[None].expand(BRANCHES, -1, -1, -1, -1).to(dtype)
        out = model(x, timestep.expand(BRANCHES), text.to(dtype), rows, return_dict=False)[0]
        results.append(torch.stack([frames_first(branch.float()) for branch in out]))
    return torch.stack(results)


def made(pipeline, clip):
    def call(**more):
        image = lambda key: Image.open(FOLDER / "image" / clip[key]).convert("RGB") if key in clip else None
        return pipeline(
            image("image"), clip["prompt"], clip["negative_prompt"], height=HEIGHT, width=WIDTH,
            num_frames=clip["frames"], num_inference_steps=clip["steps"], guidance_scale=clip["guidance"],
            last_image=image("last_image"), generator=torch.Generator().manual_seed(clip["seed"]), **more).frames[0]
    latents, video = call(output_type="latent"), torch.from_numpy(call(output_type="np"))
    return {"latents": frames_first(latents),
            "frames": video[KEPT_FRAMES].mul(255).round().to(torch.float16).contiguous()}


def make(name, kind):
    folder = FOLDER / name
    generator = write_transformer(kind, folder)
    pipeline = opened(folder)
    pipeline.save_config(folder)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    names = [FIRST, LAST] if kind["positions"] else [FIRST]
    text = draw(11, BRANCHES, 24)
    text[4:, 1] = 0
    results = {
        "transformer.latents": draw(2, 3, 2 * LATENTS + 4, 6, 10),
        "transformer.timesteps": torch.tensor([999.0, 437.0]),
        "transformer.text": text,
        "transformer.image_rows": image_rows(pipeline, names),
    }
    expected = transformer_output(pipeline.transformer, results, torch.float32)
    half = opened(folder, torch.bfloat16)
    bf16 = {"transformer.output": errors(transformer_output(half.transformer, results, torch.bfloat16), expected)}
    results["transformer.output"] = expected
    if name == "image":
        for image in IMAGES:
            pixels = pipeline.image_processor(images=Image.open(folder / image), return_tensors="pt").pixel_values
            rows = image_rows(pipeline, [image])
            results |= {f"{image}.pixels": pixels, f"{image}.rows": rows}
            bf16[f"{image}.rows"] = errors(image_rows(half, [image]).float(), rows)
    for i, clip in enumerate(kind["clips"]):
        results |= {f"clip{i}.{key}": value for key, value in made(pipeline, clip).items()}
    for key, value in results.items():
        print(name, key, tuple(value.shape), value.float().abs().mean().item())
    save_file({key: value.contiguous() for key, value in results.items()}, folder / "reference.safetensors")
    write_json(folder / "clips.json", dict(
        height=HEIGHT, width=WIDTH, frames=KEPT_FRAMES, clips=kind["clips"],
        versions={m.__name__: m.__version__ for m in (diffusers, torch, transformers)}))
    return bf16


def main():
    if int(PIL.__version__.split(".")[0]) >= 13:
        sys.exit(f"Pillow {PIL.__version__} was found, a version before 13 is needed")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in KINDS:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        (FOLDER / name).mkdir()
    with torch.no_grad():
        write_image_parts(FOLDER / "image")
        found = {name: make(name, kind) for name, kind in KINDS.items()}
    path = FOLDER / "bf16_errors.json"
    write_json(path, json.loads(path.read_text()) | found)


if __name__ == "__main__":
    main()

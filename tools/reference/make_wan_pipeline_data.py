#!/usr/bin/env python3
"""Completes folders of tests/data/wan to tiny models, and makes clips with diffusers' Wan pipelines.

Adds scheduler/ (UniPC) and model_index.json to the transformers and autoencoders of make_wan_data.py in float32/ (Wan
2.1) and ti2v/ (as TI2V-5B), and to float32/ also text_encoder/ (UMT5) and tokenizer/, which ti2v/ shares.
pipeline.safetensors has the token ids, embeddings, final latents and some frames of each clip, pipeline.json its
settings. Everything is float32 on the CPU.

To run it again, with the packages of make_wan_data.py, sentencepiece, ftfy and, as tests/data/media, Pillow before
version 13:
    python tools/reference/make_wan_pipeline_data.py                 # --kinds ti2v: only that folder
"""
import argparse
import shutil
from pathlib import Path

import diffusers
import torch
import transformers
from diffusers.utils import load_image
from safetensors.torch import save_file

from cogvideox_kinds import PROMPTS
from make_cogvideox_data import fill, train_tokenizer
from make_wan_data import frames_first, write_json

DATA = Path(__file__).parents[2] / "tests" / "data"
TEXTS = DATA / "wan" / "float32"
SHIFT = 5.0
KINDS = {
    "float32": dict(
        height=48, width=80, num_frames=17, frames=[0, 1, 8, 16], more={}, clips=[
            dict(prompt=PROMPTS[1], negative_prompt=PROMPTS[3], seed=42, steps=5, guidance=5.0),
            dict(prompt=PROMPTS[2], negative_prompt="", seed=7, steps=12, guidance=3.5),
            dict(prompt=PROMPTS[4], negative_prompt="", seed=9, steps=4, guidance=1.0)]),
    # From a text, and from a picture that is resized.
    "ti2v": dict(
        height=64, width=96, num_frames=9, frames=[0, 1, 8], more=dict(expand_timesteps=True), clips=[
            dict(prompt=PROMPTS[1], negative_prompt=PROMPTS[3], seed=42, steps=5, guidance=5.0),
            dict(prompt=PROMPTS[2], negative_prompt="", seed=7, steps=6, guidance=3.5, image="photo.jpg"),
            dict(prompt=PROMPTS[4], negative_prompt="", seed=9, steps=4, guidance=1.0, image="small.png")]),
}


def texts():
    tokenizer = TEXTS / "tokenizer"
    shutil.rmtree(tokenizer, ignore_errors=True)
    tokenizer.mkdir()
    train_tokenizer(tokenizer / "spiece.model", "nmt_nfkc")
    transformers.T5Tokenizer(str(tokenizer / "spiece.model"), legacy=True).save_pretrained(tokenizer)
    config = transformers.UMT5Config(
        vocab_size=480, d_model=24, d_kv=8, d_ff=40, num_layers=3, num_heads=3, feed_forward_proj="gated-gelu",
        dropout_rate=0.0, tie_word_embeddings=False)
    text_encoder = fill(transformers.UMT5EncoderModel(config), 17, {"SelfAttention.q": 0.5, "wo": 1.3})
    text_encoder.save_pretrained(TEXTS / "text_encoder")


def open_pipelines(folder, more):
    """WanPipeline, and WanImageToVideoPipeline of the same parts."""
    scheduler = diffusers.UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=SHIFT)
    scheduler.save_pretrained(folder / "scheduler")
    opened = dict(torch_dtype=torch.float32)
    parts = dict(
        tokenizer=transformers.T5Tokenizer.from_pretrained(TEXTS / "tokenizer"),
        text_encoder=transformers.UMT5EncoderModel.from_pretrained(TEXTS / "text_encoder").eval(),
        transformer=diffusers.WanTransformer3DModel.from_pretrained(folder / "transformer", **opened).eval(),
        vae=diffusers.AutoencoderKLWan.from_pretrained(folder / "vae", **opened).eval(),
        scheduler=diffusers.UniPCMultistepScheduler.from_pretrained(folder / "scheduler"))
    pipelines = [diffusers.WanPipeline(**parts, **more), diffusers.WanImageToVideoPipeline(**parts, **more)]
    pipelines[0].save_config(folder)
    for pipeline in pipelines:
        pipeline.set_progress_bar_config(disable=True)
    return pipelines


def made(pipelines, kind, clip):
    """Token ids, embeddings of the prompt, final latents [frame, channel, row, column], kept frames as bytes."""
    pipeline = pipelines["image" in clip]
    own = dict(prompt=clip["prompt"], negative_prompt=clip["negative_prompt"], height=kind["height"],
               width=kind["width"], num_frames=kind["num_frames"], num_inference_steps=clip["steps"],
               guidance_scale=clip["guidance"])
    if "image" in clip:
        own["image"] = load_image(str(DATA / "cogvideox" / "media" / clip["image"]))

    def call(**more):
        return pipeline(**own, generator=torch.Generator().manual_seed(clip["seed"]), **more).frames[0]
    cleaned = diffusers.pipelines.wan.pipeline_wan.prompt_clean(clip["prompt"])
    ids = pipeline.tokenizer(cleaned, padding="max_length", max_length=512, truncation=True).input_ids
    embeddings, _ = pipeline.encode_prompt(clip["prompt"], do_classifier_free_guidance=False)
    latents, video = call(output_type="latent"), torch.from_numpy(call(output_type="np"))
    kept = ids.index(1) + 1
    return {"token_ids": torch.tensor(ids, dtype=torch.int32), "embeddings": embeddings[0, :kept].contiguous(),
            "latents": frames_first(latents),
            "frames": video[kind["frames"]].mul(255).round().to(torch.float16).contiguous()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in parser.parse_args().kinds:
        folder, kind = DATA / "wan" / name, KINDS[name]
        with torch.no_grad():
            if folder == TEXTS:
                texts()
            pipelines = open_pipelines(folder, kind["more"])
            results = {}
            for i, clip in enumerate(kind["clips"]):
                results |= {f"clip{i}.{key}": value for key, value in made(pipelines, kind, clip).items()}
        for key, value in results.items():
            print(name, key, tuple(value.shape), value.float().abs().mean().item())
        save_file(results, folder / "pipeline.safetensors")
        facts = {key: value for key, value in kind.items() if key != "more"}
        write_json(folder / "pipeline.json", facts | dict(
            versions={m.__name__: m.__version__ for m in (diffusers, torch, transformers)}))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Completes tests/data/wan/float32 to a whole tiny model, and makes clips with diffusers' WanPipeline.

Adds text_encoder/ (UMT5), tokenizer/, scheduler/ (UniPC) and model_index.json to the transformer and autoencoder of
make_wan_data.py. pipeline.safetensors has the token ids, embeddings, final latents and some frames of each clip,
pipeline.json its settings. Everything is float32 on the CPU.

To run it again, with the packages of make_wan_data.py, sentencepiece and ftfy:
    python tools/reference/make_wan_pipeline_data.py
"""
import shutil
from pathlib import Path

import diffusers
import torch
import transformers
from safetensors.torch import save_file

from cogvideox_kinds import PROMPTS
from make_cogvideox_data import fill, train_tokenizer
from make_wan_data import frames_first, write_json

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "wan" / "float32"
HEIGHT, WIDTH, FRAMES = 48, 80, 17
SHIFT, KEPT_FRAMES = 5.0, [0, 1, 8, 16]
CLIPS = [
    dict(prompt=PROMPTS[1], negative_prompt=PROMPTS[3], seed=42, steps=5, guidance=5.0),
    dict(prompt=PROMPTS[2], negative_prompt="", seed=7, steps=12, guidance=3.5),
    dict(prompt=PROMPTS[4], negative_prompt="", seed=9, steps=4, guidance=1.0),
]


def parts():
    tokenizer = FOLDER / "tokenizer"
    shutil.rmtree(tokenizer, ignore_errors=True)
    tokenizer.mkdir()
    train_tokenizer(tokenizer / "spiece.model", "nmt_nfkc")
    transformers.T5Tokenizer(str(tokenizer / "spiece.model"), legacy=True).save_pretrained(tokenizer)
    config = transformers.UMT5Config(
        vocab_size=480, d_model=24, d_kv=8, d_ff=40, num_layers=3, num_heads=3, feed_forward_proj="gated-gelu",
        dropout_rate=0.0, tie_word_embeddings=False)
    text_encoder = fill(transformers.UMT5EncoderModel(config), 17, {"SelfAttention.q": 0.5, "wo": 1.3})
    text_encoder.save_pretrained(FOLDER / "text_encoder")
    scheduler = diffusers.UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=SHIFT)
    scheduler.save_pretrained(FOLDER / "scheduler")


def open_pipeline():
    pipeline = diffusers.WanPipeline(
        tokenizer=transformers.T5Tokenizer.from_pretrained(FOLDER / "tokenizer"),
        text_encoder=transformers.UMT5EncoderModel.from_pretrained(FOLDER / "text_encoder").eval(),
        transformer=diffusers.WanTransformer3DModel.from_pretrained(FOLDER / "transformer").eval(),
        vae=diffusers.AutoencoderKLWan.from_pretrained(FOLDER / "vae").eval(),
        scheduler=diffusers.UniPCMultistepScheduler.from_pretrained(FOLDER / "scheduler"))
    pipeline.save_config(FOLDER)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def made(pipeline, clip):
    """Token ids, embeddings of the prompt, final latents [frame, channel, row, column], kept frames as bytes."""
    def call(**more):
        return pipeline(
            clip["prompt"], clip["negative_prompt"], height=HEIGHT, width=WIDTH, num_frames=FRAMES,
            num_inference_steps=clip["steps"], guidance_scale=clip["guidance"],
            generator=torch.Generator().manual_seed(clip["seed"]), **more).frames[0]
    cleaned = diffusers.pipelines.wan.pipeline_wan.prompt_clean(clip["prompt"])
    ids = pipeline.tokenizer(cleaned, padding="max_length", max_length=512, truncation=True).input_ids
    embeddings, _ = pipeline.encode_prompt(clip["prompt"], do_classifier_free_guidance=False)
    latents, video = call(output_type="latent"), torch.from_numpy(call(output_type="np"))
    kept = ids.index(1) + 1
    return {"token_ids": torch.tensor(ids, dtype=torch.int32), "embeddings": embeddings[0, :kept].contiguous(),
            "latents": frames_first(latents),
            "frames": video[KEPT_FRAMES].mul(255).round().to(torch.float16).contiguous()}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with torch.no_grad():
        parts()
        pipeline = open_pipeline()
        results = {}
        for i, clip in enumerate(CLIPS):
            results |= {f"clip{i}.{name}": value for name, value in made(pipeline, clip).items()}
    for name, value in results.items():
        print(name, tuple(value.shape), value.float().abs().mean().item())
    save_file(results, FOLDER / "pipeline.safetensors")
    write_json(FOLDER / "pipeline.json", dict(
        height=HEIGHT, width=WIDTH, num_frames=FRAMES, frames=KEPT_FRAMES, clips=CLIPS,
        versions={m.__name__: m.__version__ for m in (diffusers, torch, transformers)}))


if __name__ == "__main__":
    main()

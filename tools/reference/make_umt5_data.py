#!/usr/bin/env python3
"""Makes tests/data/umt5: a tiny UMT5 encoder with its tokenizer, and what diffusers' Wan pipelines make of prompts.

The folder has text_encoder/ and tokenizer/ as save_pretrained writes them, with spiece.model beside
tokenizer.json as in google/umt5-xxl. reference.json has, for each prompt, the cleaned text and the ids
by transformers' AutoTokenizer, and the RMS error of bfloat16 relative to the largest value; reference.safetensors the
embeddings in float32 [row, channel], with zeros behind the prompt.

To run it again:
    pip install "torch==2.15.*" "diffusers==0.36.*" "transformers<5" sentencepiece protobuf safetensors "ftfy==6.3.*"
    python tools/reference/make_umt5_data.py
"""
import io
import json
import shutil
import types
from pathlib import Path

import sentencepiece
import torch
import transformers
from diffusers.pipelines.wan.pipeline_wan import WanPipeline, prompt_clean
from safetensors.torch import save_file

from cogvideox_kinds import CORPUS
from make_cogvideox_data import fill

OUTPUT = Path(__file__).resolve().parents[2] / "tests" / "data" / "umt5"
ROWS = 40
PROMPTS = ["", "A red kite climbs above a green hill.", "  a&amp;b\t<i>Two   dogs</i> run\n\nhome ",
           "ＦＵＬＬ，过曝　静态 a cat 你好 你 好世界 a", "</s> a <pad> b <extra_id_0> c <unk>",
           "the camera follows a boat along the river while rain falls on the old town and the lights go "
           "on one after the other behind the windows"]


def make_tokenizer(folder):
    """With the special ids of UMT5: <s> is 2, <unk> is 3."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, model_type="unigram", vocab_size=320,
        hard_vocab_limit=False, character_coverage=0.9995, normalization_rule_name="nmt_nfkc", pad_id=0, eos_id=1,
        bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="</s>", bos_piece="<s>", unk_piece="<unk>", num_threads=1,
        minloglevel=2)
    folder.mkdir(parents=True)
    (folder / "spiece.model").write_bytes(model.getvalue())
    fast = transformers.T5TokenizerFast(str(folder / "spiece.model"), extra_ids=300, model_max_length=ROWS,
                                        add_prefix_space=True)
    fast.save_pretrained(folder)
    # AutoTokenizer reads tokenizer.json, but makes a new one of spiece.model where this is set.
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    settings.pop("add_prefix_space", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")


def pipeline(dtype):
    """What WanPipeline needs to encode prompts."""
    return types.SimpleNamespace(
        tokenizer=transformers.AutoTokenizer.from_pretrained(OUTPUT / "tokenizer"),
        text_encoder=transformers.UMT5EncoderModel.from_pretrained(OUTPUT / "text_encoder", torch_dtype=dtype).eval(),
        _execution_device=torch.device("cpu"))


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    make_tokenizer(OUTPUT / "tokenizer")
    tokenizer = transformers.AutoTokenizer.from_pretrained(OUTPUT / "tokenizer")
    assert tokenizer.is_fast and tokenizer.unk_token_id == 3
    config = transformers.UMT5Config(
        vocab_size=-(-len(tokenizer) // 32) * 32 + 32, d_model=32, d_kv=8, num_heads=4, d_ff=56, num_layers=3,
        relative_attention_num_buckets=8, relative_attention_max_distance=12, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False)
    encoder = fill(transformers.UMT5EncoderModel(config), 31, {".q.": 0.5, ".wo.": 1.3})
    encoder.save_pretrained(OUTPUT / "text_encoder")
    half, whole = pipeline(torch.bfloat16), pipeline(torch.float32)
    tensors, cases = {}, []
    for i, text in enumerate(PROMPTS):
        embed = lambda own: WanPipeline._get_t5_prompt_embeds(own, [text], max_sequence_length=ROWS)[0].float()
        tensors[f"embeddings.{i}"] = embed(whole).contiguous()
        error = (embed(half) - tensors[f"embeddings.{i}"]).abs()
        ids = tokenizer([prompt_clean(text)], max_length=ROWS, truncation=True, add_special_tokens=True).input_ids[0]
        cases.append({"text": text, "cleaned": prompt_clean(text), "ids": ids,
                      "bfloat16_rms": (error.square().mean().sqrt() / tensors[f"embeddings.{i}"].abs().max()).item()})
    save_file(tensors, OUTPUT / "reference.safetensors")
    (OUTPUT / "reference.json").write_text(
        json.dumps({"rows": ROWS, "prompts": cases}, ensure_ascii=False) + "\n", "utf-8")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):  # large, and not read
        (OUTPUT / "tokenizer" / name).unlink()
    for path in OUTPUT.rglob("*.safetensors"):
        path.chmod(0o644)


if __name__ == "__main__":
    main()

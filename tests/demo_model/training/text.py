"""The vocabulary and the text encoder, a small T5."""
import io
import warnings

import numpy as np
import sentencepiece
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from drawn_clips import captions, scenes

LENGTH = 32  # tokens per prompt
WIDTH = 128
PIECES = 320


def train_vocabulary(folder, seed, sentences=20000):
    """Writes tokenizer/ in `folder`: spiece.model and the configs of T5Tokenizer."""
    target = folder / "tokenizer"
    if (target / "tokenizer_config.json").exists():
        return
    target.mkdir(exist_ok=True)
    rng = np.random.default_rng([seed, 2])
    labels = scenes.sample(rng, sentences)
    lines = [captions.caption(rng, labels, i) for i in range(sentences)]
    # sentencepiece makes pieces of what occurs in several contexts: add each word with punctuation.
    words = sorted({word.strip(".,;:") for line in lines for word in line.split()})
    lines += [f"{word} {word}, {word}; {word}." for word in words] * 20
    model = io.BytesIO()
    letters = "".join(chr(c) for c in range(33, 127))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="unigram",
        vocab_size=PIECES, hard_vocab_limit=False, character_coverage=1.0,
        required_chars=letters, normalization_rule_name="identity", pad_id=0, eos_id=1, unk_id=2,
        bos_id=-1, pad_piece="<pad>", eos_piece="</s>", unk_piece="<unk>", num_threads=1,
        minloglevel=2)
    (target / "spiece.model").write_bytes(model.getvalue())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        T5Tokenizer(str(target / "spiece.model"), legacy=True).save_pretrained(target)


def load_vocabulary(folder):
    return T5Tokenizer.from_pretrained(folder / "tokenizer", legacy=True)


def encode(tokenizer, texts, length=LENGTH):
    """Token ids as the pipeline computes them: int64 [N, length]."""
    return tokenizer(texts, padding="max_length", max_length=length, truncation=True,
                     return_tensors="pt").input_ids


def make_encoder(tokenizer):
    rows = -(-len(tokenizer) // 8) * 8
    return T5EncoderModel(T5Config(
        vocab_size=rows, d_model=WIDTH, d_kv=32, d_ff=256, num_layers=2, num_heads=4,
        feed_forward_proj="gated-gelu", dropout_rate=0.0, tie_word_embeddings=False,
        use_cache=False, is_encoder_decoder=False, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0))

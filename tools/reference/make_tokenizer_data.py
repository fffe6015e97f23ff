#!/usr/bin/env python3
"""Writes tests/data/tokenizer: a small sentencepiece model and token ids by transformers with it.

Needs transformers (4.57, the last series with the slow T5Tokenizer), sentencepiece and protobuf
from PyPI.

    python3 tools/reference/make_tokenizer_data.py [tests/data/tokenizer]
"""
import io
import json
import pathlib
import sys
import warnings

import sentencepiece
from transformers import T5Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Text, and the maximum number of ids (truncation and padding).
PROMPTS = [
    # plain
    ("", 8),
    ("", 1),
    ("A red kite climbs above a green hill while the camera follows it slowly.", 64),
    ("a panda, playing the guitar", 32),
    ("PANDA Panda panda", 32),
    ("Two robots   with   many    spaces ", 32),
    ("  leading and trailing  ", 32),
    ("tabs\tand\nnew\r\nlines", 32),
    ("   ", 8),
    ("\n", 8),
    ("x", 8),
    ("1234567890 3.14159 1,000,000 50% -7", 64),
    ("\"Quotes\" 'single' (brackets) [square] {curly} <angle> a/b\\c", 64),
    ("e-mail: someone@example.org, https://example.org/?q=1&r=2#s", 64),
    ("wide-angle shot; f/2.8 @ 35 mm; 16:9!?", 64),
    ("supercalifragilisticexpialidocious", 64),
    ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 64),
    # beyond ASCII
    ("A naïve café owner in Zürich", 64),
    ("e\u0301 cafe\u0301 combining acute", 64),
    ("Crème brûlée, piñata, façade, Ærø, Łódź", 64),
    ("ﬁne ligatures, ½ a cup, ™ ① ② ㎏", 64),
    ("ｆｕｌｌ　ｗｉｄｔｈ　ｔｅｘｔ", 64),
    ("一只熊猫在弹吉他", 32),
    ("パンダがギターを弾いている", 32),
    ("판다가 기타를 친다", 32),
    ("Панда играет на гитаре", 32),
    ("باندا يعزف", 32),
    ("แพนด้า", 32),
    ("a 😀 smile 👩‍👩‍👧 family 🇫🇷", 32),
    ("unknown 你 between 好 known", 32),
    ("“curly” ‘quotes’ – dash — long … dots", 64),
    ("non\u00a0breaking, zero\u200bwidth, join\u200der, \ufeffmark", 64),
    ("line\u2028separator\u2029paragraph\u0085next", 64),
    ("controls \u0001\u0008\u000b\u001c\u007f end", 32),
    ("\U0010ffff last, \ufffd replacement", 32),
    ("▁meta ▁ sym▁bol", 32),
    ("İstanbul ß ẞ ǆ", 32),
    # special tokens as text
    ("</s>", 8),
    ("a fox</s>", 16),
    ("a fox </s> a wolf", 16),
    ("</s></s>", 8),
    ("a fox</s> ", 16),
    ("<pad>", 8),
    ("a<pad>b <pad> c", 32),
    ("<unk> a <unk>", 16),
    ("<extra_id_0>", 8),
    ("a <extra_id_0> fox <extra_id_1> jumps<extra_id_99>", 32),
    ("a \u3000\u0085<extra_id_3>\u001c\u2003 fox", 32),
    ("<extra_id_100> <extra_id_> <extra_id_7 <EXTRA_ID_7> <extra_id_07>", 64),
    ("<<pad>> < /s> <s> <//s>", 64),
    ("＜pad＞ ＜/s＞ ＜extra_id_1＞", 64),
    # longer than the limit
    ("A red kite climbs above a green hill", 13),
    ("A red kite climbs above a green hill", 12),
    ("A red kite climbs above a green hill", 2),
    ("A red kite climbs above a green hill", 6),
    ("A red kite climbs above a green hill and then, at 6:30, into a café (with crème brûlée).", 12),
    ("a fox</s>", 3),
    ("a fox </s> a wolf <extra_id_5> a <unk> bear </s> the end", 3),
    ("a fox </s> a wolf <extra_id_5> a <unk> bear 你好 </s>", 4),
    ("<extra_id_1><extra_id_2> <extra_id_3> x <pad> <pad>y", 2),
    ("A golden dragon flies over the frozen lake. " * 30, 226),
    ("the " * 225, 226),
    ("the " * 226, 226),
]


def train(folder):
    model = io.BytesIO()
    text = (ROOT / "inputs/tokenizer_text.txt").read_text("utf-8")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()),
        model_writer=model, model_type="unigram", vocab_size=1000, hard_vocab_limit=False,
        character_coverage=1.0, normalization_rule_name="nmt_nfkc", pad_id=0, eos_id=1, unk_id=2,
        bos_id=-1, num_threads=1, minloglevel=2)
    (folder / "spiece.model").write_bytes(model.getvalue())


def encode(tokenizer, text, length):
    """Calls the tokenizer like CogVideoXPipeline._get_t5_prompt_embeds of diffusers 0.36."""
    ids = tokenizer(text, padding="max_length", max_length=length, truncation=True,
                    add_special_tokens=True).input_ids
    whole = tokenizer(text, padding="longest").input_ids
    cut = ""
    if len(whole) >= len(ids) and whole != ids:
        cut = tokenizer.decode(whole[length - 1:-1], clean_up_tokenization_spaces=False)
    kept = min(len(whole), length)
    return {"text": text, "max_length": length, "kept": kept, "cut": cut, "ids": ids[:kept]}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/data/tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    train(folder)
    tokenizer = T5Tokenizer(str(folder / "spiece.model"), legacy=True)
    cases = [encode(tokenizer, *prompt) for prompt in PROMPTS]
    lines = ",\n".join(json.dumps(case) for case in cases)
    (folder / "prompts.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()

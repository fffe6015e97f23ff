#!/usr/bin/env python3
"""Writes the token ids of odd prompts by transformers, with spiece.model and with tokenizer.json.

With transformers 4.57 (and sentencepiece, protobuf): tests/data/tokenizer_json/odd_prompts.json, by the
slow T5Tokenizer with and without "legacy", and by fast tokenizers of small variants of a
tokenizer.json (tokenizer.json there with changes, JSON merge patches).

With transformers 5: tests/data/tokenizer_of_transformers5, what save_pretrained writes for the
tokenizer of inputs/demo_model, and the ids of T5Tokenizer with it (odd_prompts.json).

    python3 tools/reference/make_tokenizer_json_data.py
"""
import json
import pathlib
import random
import re
import shutil
import tempfile
import warnings

import transformers
from make_tokenizer_data import PROMPTS, ROOT, encode

COUNT = 1000
PIECES = ROOT / "tests/data/tokenizer/spiece.model"
DATA = ROOT / "tests/data/tokenizer_json"
DATA_5 = ROOT / "tests/data/tokenizer_of_transformers5"

# What prompts are put together from.
SPACES = [" ", " ", " ", " ", " ", "  ", "   ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2003",
          "\u200b", "\u0085", "\u2028", "\u1680", "\x1c", "\x0b", "\ufeff", "\u00ad", ""]
SPECIAL = ["</s>", "<pad>", "<unk>", "<s>", "<extra_id_0>", "<extra_id_7>", "<extra_id_99>",
           "<extra_id_100>", "<extra_id_299>", "<extra_id_", "</s", "<<pad>>", "＜pad＞", "＜/s＞",
           "<0x41>", "<0xE4>", "<token>", "<Token>", "[WORD]", "ＴＯＫＥＮ", "▁", "▁▁", "▁a", "<pad"]
MARKED = ["e\u0301", "A\u030a", "o\u0308\u0301", "e\u0301\u0323", "n\u0303", "か\u3099", "①\u0301",
          "ª\u0301", "²\u0323", "¨", "´", "¨a", "\u00a8\u0301", "\u0301", "\u0301a", "½", "¼\u0301",
          "ﬁ", "ﬄ", "™", "℃", "㎏", "㍿", "ｆｕｌｌ", "ﾊﾟ", "ﾊ\uff9f", "Å", "Ω", "ﷺ", "각", "ᄀ\u1161",
          "\u0600e\u0301", "\u06dda", "ªา", "ª\u0e33", "ª\u102b", "ª\u200d", "ª\u200c", "µ", "ſ",
          "ª\U0001f3fb", "©\ufe0f", "®", "…", "‥", "“", "\u00b7", "\u2126", "Ⅷ", "ǆ", "ẛ\u0323"]
OTHER = ["一只熊猫", "在弹吉他", "パンダ", "판다가", "Панда", "باندا", "แพนด้า", "नमस्ते", "😀", "👩‍👩‍👧", "🇫🇷",
         "👍🏽", "𝒜", "\U0010ffff", "\ufffd", "\x00", "\x01", "\x7f", "1,000", "3.14", "#tag", "@", "\\",
         "\"", "'", "(", ")", "!?", "-", "–", "—", "a/b", "x", "zzzz", "aaaaaaa", "İ", "ß", "Ł"]


def odd_prompts():
    """1,000 texts with maximum numbers of ids; the first are those of make_tokenizer_data.py."""
    rng = random.Random(1)
    lines = (ROOT / "inputs/tokenizer_text.txt").read_text("utf-8").splitlines()
    words = sorted({word for line in lines for word in line.split()})
    prompts = list(PROMPTS)
    while len(prompts) < COUNT:
        text = "".join(
            rng.choice(rng.choices([words, SPECIAL, MARKED, OTHER, SPACES], [5, 2, 2, 1, 1])[0]) + rng.choice(SPACES)
            for _ in range(rng.randint(1, 5)))
        prompts.append((text.encode("utf-8", "replace").decode(), rng.choice([3, 8, 16, 100, 100, 100])))
    return prompts


def added(content, number, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True, **flags}


def metaspace(scheme, split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def changes_of(base):
    """Name of a variant → its changes of tokenizer.json."""
    table = base["normalizer"]["normalizers"][0]
    in_words = [{"type": "WhitespaceSplit"}]
    pieces = base["model"]["vocab"][3:1000]
    sentinels = [[f"<extra_id_{i}>", 0.0] for i in range(299, -1, -1)]
    umt5 = ([["<pad>", 0.0], ["</s>", 0.0], ["<s>", 0.0], ["<unk>", 0.0]]
            + [[f"<0x{byte:02X}>", 0.0] for byte in range(256)] + pieces + sentinels)
    umt5_tokens = [added(umt5[i][0], i) for i in range(4)]
    umt5_tokens += [added(umt5[i][0], i, lstrip=True, rstrip=True) for i in range(len(umt5) - 300, len(umt5))]
    more = len(base["model"]["vocab"])
    return {
        "as T5TokenizerFast writes it": {},
        "as of T5": {
            "normalizer": table,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": in_words + [
                {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "str_rep": "▁"}]}},
        "first": {"pre_tokenizer": metaspace("first")},
        "first in words": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": in_words + [metaspace("first")]}},
        "never": {"pre_tokenizer": metaspace("never")},
        "whole texts": {"pre_tokenizer": metaspace("first", split=False)},
        "as of UMT5": {"added_tokens": umt5_tokens, "model": {"vocab": umt5, "unk_id": 3, "byte_fallback": True}},
        "bytes, no table": {
            "added_tokens": umt5_tokens, "normalizer": None, "pre_tokenizer": metaspace("first"),
            "model": {"vocab": umt5, "unk_id": 3, "byte_fallback": True}},
        "some bytes": {
            "added_tokens": umt5_tokens[:4], "normalizer": None,
            "model": {"vocab": umt5[:4] + umt5[104:-300], "unk_id": 3, "byte_fallback": True}},
        "added tokens": {
            "added_tokens": base["added_tokens"] + [
                added("<token>", more, special=False, normalized=True),
                added("TOKEN", more + 1, single_word=True, normalized=True, rstrip=True),
                added("[WORD]", more + 2, lstrip=True), added("▁a", base["model"]["vocab"].index(
                    next(p for p in base["model"]["vocab"] if p[0] == "▁a"))),
                added("e", next(i for i, p in enumerate(base["model"]["vocab"]) if p[0] == "e"), single_word=True)]},
        "stripped": {"normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Strip", "strip_left": True, "strip_right": True}, table]}, "pre_tokenizer": metaspace("first")},
    }


def merged(base, change):
    """JSON merge patch (RFC 7386), except that null stays null."""
    if not isinstance(change, dict) or not isinstance(base, dict):
        return change
    return {**base, **{key: merged(base.get(key), value) for key, value in change.items()}}


def dumps(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def words(tokenizer, cut):
    """The words that were cut off, as a user reads them: without spaces in front, bytes as text."""
    if tokenizer.is_fast and json.loads(tokenizer.backend_tokenizer.to_str())["model"]["byte_fallback"]:
        cut = re.sub(rb"<0x([0-9A-F]{2})>", lambda byte: bytes([int(byte[1], 16)]), cut.encode())
        cut = cut.decode("utf-8", "replace")
    return cut.lstrip(" ")


def write_cases(path, prompts, tokenizers, **more):
    """The results of each prompt without repetition, and which of them each tokenizer gives."""
    lines = []
    for text, length in prompts:
        results, of = [], []
        for tokenizer in tokenizers:
            case = encode(tokenizer, text, length)
            result = {"kept": case["kept"], "cut": words(tokenizer, case["cut"]), "ids": case["ids"]}
            if result not in results:
                results.append(result)
            of.append(results.index(result))
        lines.append(dumps({"text": text, "max_length": length, "of": of, "results": results}))
    first = "".join(f"{dumps(key)}: {dumps(value)},\n" for key, value in more.items())
    path.write_text("{" + first + "\"prompts\": [\n" + ",\n".join(lines) + "\n]}\n", "utf-8")


def with_transformers_4():
    from transformers import T5Tokenizer, T5TokenizerFast
    slow = {"legacy": {"legacy": True}, "not legacy": {"legacy": False},
            "no prefix": {"legacy": False, "add_prefix_space": False}}
    tokenizers = [T5Tokenizer(str(PIECES), **settings) for settings in slow.values()]
    base_file = DATA / "tokenizer.json"
    with tempfile.TemporaryDirectory() as folder:
        T5TokenizerFast(str(PIECES), add_prefix_space=True).save_pretrained(folder)
        base = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text("utf-8"))
        base_file.write_text(dumps(base) + "\n", "utf-8")
        changes = changes_of(base)
        for change in changes.values():
            file = pathlib.Path(folder) / "variant.json"
            file.write_text(json.dumps(merged(base, change)), "utf-8")
            tokenizers.append(transformers.PreTrainedTokenizerFast(
                tokenizer_file=str(file), eos_token="</s>", unk_token="<unk>", pad_token="<pad>"))
    write_cases(DATA / "odd_prompts.json", odd_prompts(), tokenizers, slow=slow, changes=changes)


def with_transformers_5():
    shutil.rmtree(DATA_5, ignore_errors=True)
    transformers.T5Tokenizer.from_pretrained(ROOT / "inputs/demo_model/tokenizer").save_pretrained(DATA_5)
    tokenizer = transformers.T5Tokenizer.from_pretrained(DATA_5)
    write_cases(DATA_5 / "odd_prompts.json", odd_prompts(), [tokenizer])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with_transformers_4() if transformers.__version__.startswith("4.") else with_transformers_5()

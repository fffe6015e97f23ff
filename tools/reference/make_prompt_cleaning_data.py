#!/usr/bin/env python3
"""Writes tests/data/prompt_cleaning.json: prompts as prompt_clean of diffusers' Wan pipelines cleans them.

The first are those that a person may write; others are put together from odd parts. "repaired" is
there if ftfy repairs wrongly decoded text; "cleaned" is then what it makes without that repair.

    pip install "diffusers==0.36.*" "ftfy==6.3.*" regex
    python3 tools/reference/make_prompt_cleaning_data.py
"""
import html
import json
import random
from pathlib import Path

import ftfy
import regex

OUTPUT = Path(__file__).resolve().parents[2] / "tests" / "data" / "prompt_cleaning.json"
COUNT = 600
PROMPTS = [
    "", "   ", "a cat", "  a  cat\tand\n\na dog ", "“here’s a test”", "ＦＵＬＬ，过曝　静态", "a &amp; b &lt;i&gt; &amp;amp;lt; &hellip;",
    "<b>a &amp; b</b> &eacute;", "&eacute; first\n<b> &Eacute; then\n&EACUTE;", "ﬁne ﬂow Ĳ ŉ", "e\u0301te\u0301 café",
    "a\u00a0b\u2003c\u200bd", "tab\u0007bell \u001b[31mred\u001b[0m", "rows\r\nof\u2028text\u0085end\rof", "this&not that &copy 5",
    "100 &#37; &#x2019; &#150; &#0; &#xD800; &#99999999999; &#x1F600; &#xfffe;", "\ufeffbom \ufffc", "A_B — … ½ ™",
    "&AMP; &Amp; &NBSP;x", "schÃ¶n", "itʼs ‘so‛", "각 \u1100\u1161\u11a8 가\u11a8", "q\u0307\u0323 \u1e0b\u0323 a\u0323\u0302",
    "Å Ω \u0340 \u0958 \u2126", "＆amp；＆ｌｔ；", "&#38;amp;lt;", "&&amp;&;&#;&#x;&a;&nosuch;&notit;", "ﾊﾟﾝﾀﾞ ￥￣"]
PARTS = ["a", "cat", "&", "&amp;", "&amp", "amp;", "lt;", "&lt", "#", "&#", "x41;", "65;", ";", "<", ">", "\n", "\r\n", "\r", " ", "  ", "\t",
         "é", "e", "\u0301", "\u0323", "\u0327", "\u1100", "\u1161", "\u11a8", "가", "ﬀ", "ﬆ", "Ǆ", "，", "！", "Ａ", "；", "ｱ", "ﾞ", "￦", "\u3000",
         "“", "”", "„", "‘", "ʼ", "\x1b[0m", "\x1b[", "\x1b", "1m", "\x00", "\x0c", "\x7f", "\u206b", "\ufff9", "\U0001f600", "你", "\u0344",
         "\u212b", "\u0f73", "&Eacute;", "&EACUTE", "&NotEqualTilde;", "&nbsp;", "&#x85;", "\u2028", "\u200b", "\u1680", "½"]


def clean(text, **settings):
    """prompt_clean, with settings of ftfy."""
    text = html.unescape(html.unescape(ftfy.fix_text(text, **settings))).strip()
    return regex.sub(r"\s+", " ", text).strip()


def main():
    rng = random.Random(3)
    lines = []
    prompts = PROMPTS + ["".join(rng.choices(PARTS, k=rng.randint(2, 14))) for _ in range(COUNT)]
    for text in prompts:
        case = {"text": text, "cleaned": clean(text, fix_encoding=False)}
        if clean(text) != case["cleaned"]:
            case["repaired"] = clean(text)
        lines.append(json.dumps(case, separators=(",", ":")))
    OUTPUT.write_text("[" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
    main()

"""Captions and the results of Open-Sora's text cleaning, for make_opensora_data.py.

The cleaning also repairs encodings (ftfy), unescapes entities and removes HTML (BeautifulSoup). `plain` tells whether
a caption gives the same result without these. The rest of the cleaning is what reelmesh implements.
"""
import contextlib
import random

import bs4

CAPTIONS = [
    "", " ", "A", "A red FOX.", "  A fox\tand a\n hound  ", "a fox,a hound.a cat/a dog", "3.5 metres,4 metres",
    "fox , hound . cat", "fox . . hound", "the end ...", "wait....what", "a--b", "one-two-three-four-five", "a_b_c_d_e",
    "a-b_c-d", "a-b_c-d_e", "well-known, hand-made", "an em\u2014dash and an en\u2013dash \u2015 \u2212 minus",
    "\u201ccurly\u201d and \u2018single\u2019 \u00abguillemets\u00bb `tick` \u00b4acute", "''''quoted''''", "\"quoted\"",
    "'quoted'", "'half quoted", "half quoted'", "\"a\" and \"b\"", "it's a dog's life", "-leading and trailing-",
    ":colon first", "colon last:", ";semicolon first", "semicolon last;", ",comma first", "comma last,", "_under_",
    "+plus last+", ".hidden", ".hidden file", ".two .words", "key : value", "key :value", "key: value", "a : b : c",
    "100% cotton", "a%20b", "a+b", "1+1=2", "50%", "%41%42", "%e4%bd%a0", "%zz", "%c3%a9t%c3%a9", "caf%C3%A9 %ff",
    "see http://example.com/a/b?c=d now", "see https://example.org.", "https:example", "example.com", "www.example.net/x",
    "www:example", "mail me@example.com please", "visit example.co.uk/path-x/ today", "node.js and asp.net", "it.it",
    "a.community", "sky.organic", "http://", "https://x", "@nick said", "hello @nick_1!", "a@b", "@",
    "#12 of #123 and #1234 and #12345", "#1a", "order 123456 now", "order 12345 now", "a1234567", "12:30 ", "at 12:30",
    "at 1:23 then", "192.168.0.1 is home", "1.2.3.4.5", "999.999.999.999x", "photo.jpg on the table", "a b.png c",
    "my.file.mp4", "a jpg image and png images", "pdf", "the webp image", "pngs and mp4s", "jpgx", "line\\nbreak",
    "\\n", "<person> walks", "<PERSON> walks", "*** SALE ***", "(round) [square] {curly}", "a|b\\c/d", "\u00a9 2024 \u00ae \u2122 \u2022",
    "\u00a7 5 \u00ba \u00bd \u00be \u00bf \u00a1 ~", "rock & roll", "a &amp; b", "&quot;hi&quot;", "&quot", "&amp", "fish &lt;chips&gt;",
    "abc123 code", "abcd123 code", "ab12 code", "ab1 code", "a123 b1234567890123456", "abc12def", "12ab34", "1a2b3c4d", "x1y2", "h2o and co2",
    "4k video", "8k", "1080p", "mp3", "3d render", "free shipping", "worldwide free shipping today", "shipping",
    "download", "free download", "download free", "free download free", "click for more", "click on this", "click here",
    "doubleclick for more", "page 12", "Page 3 of 4", "homepage 12", "1920x1080", "1920 x 1080", "10\u00d720", "3.5x4.5 cm", "5\u04456", "a 2x zoom",
    "\u6771\u4eac at night", "Tokyo \u6771\u4eac, caf\u00e9 na\u00efve", "\u3042\u3044 \u30a2 kana", "\u3220\u33a1\u3400\u4dc0\u31c0\u31f0", "\ud55c\uad6d\uc5b4", "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u0442\u0435\u043a\u0441\u0442",
    "STRASSE Stra\u00dfe \u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03a3", "\u00c9T\u00c9", "non\u00a0breaking space", "thin\u2009space", "zero\u200bwidth", "soft\u00adhyphen",
    "ideographic\u3000space", "line\u2028separator", "emoji \U0001f600 here", "combining e\u0301", "\ufb01lm and \ufb02ight", "\uff21\uff22\uff23 full width",
    "<b>bold</b> text", "a < b and c > d", "<br>", "<unclosed", "<!-- note --> text", "x<y", "AT&T", "&eacute;t&eacute;", "\u00e2\u20ac\u0153mojibake\u00e2\u20ac\u009d", "schÃ¶n",
    "A soaring drone footage captures the majestic beauty of a coastal cliff, its red and yellow stratified rock faces rich in color and in the process of eroding.",
    "The vibrant beauty of a sunflower field. The sunflowers, with their bright yellow petals and dark centres, are in full bloom. aesthetic score: 6.5.",
    "a majestic view, 4k, high-quality, ultra-detailed, photo-realistic, slow-motion aesthetic score: 6.5. motion score: 5.0. camera motion: pan left.",
    "Close-up: a cat (black & white) jumps over 3 fences; it lands... safely!", "What?!  Really?? \"Yes,\" she said -- 'of course'.",
]

PIECES = [
    "fox", "The", "RED", "hill-side", "on", "the", "a", "it's", "\"", "'", ",", ".", "...", ":", ";", "-", "--", "_", "/", "\\",
    "(", ")", "[", "*", "#", "#12", "123456", "42", "3.5", "x", "2x3", "ab12", "abc123", "a1b", "page", "7", "!", "?", "@cat", "&", "+",
    "%20", "\u2014", "\u201c", "\u2019", "\u00e9t\u00e9", "caf\u00e9", "\u00d7", "jpg", "b.png", "1:23", "free", "shipping", "click", "for",
]


def drawn_captions(count):
    """Random concatenations of pieces, to test interactions between the rules."""
    rng = random.Random(11)
    return ["".join(rng.choice(PIECES) + rng.choice(["", "", " ", " ", "  "]) for _ in range(rng.randint(2, 9)))
            for _ in range(count)]


@contextlib.contextmanager
def without_repairs(t5):
    """Disables ftfy, unescaping and the HTML parser in the cleaning."""

    class Text:
        def __init__(self, text, features):
            self.text = text

    fix, unescape, soup = t5.ftfy.fix_text, t5.html.unescape, bs4.BeautifulSoup
    t5.ftfy.fix_text, t5.html.unescape, bs4.BeautifulSoup = (lambda text: text), (lambda text: text), Text
    try:
        yield
    finally:
        t5.ftfy.fix_text, t5.html.unescape, bs4.BeautifulSoup = fix, unescape, soup


def cleaned_captions(t5):
    """A list of {text, cleaned, plain}; `cleaned` is the result after both passes."""
    texts = CAPTIONS + drawn_captions(120)
    cleaned = [t5.text_preprocessing(text) for text in texts]
    with without_repairs(t5):
        plain = [t5.text_preprocessing(text) == c for text, c in zip(texts, cleaned)]
    return [{"text": text, "cleaned": c, "plain": p} for text, c, p in zip(texts, cleaned, plain)]

#!/usr/bin/env python3
"""Writes lib/text/text_tables.cpp: named characters of HTML 5 and canonical compositions of Unicode.

    python3 tools/reference/make_text_tables.py

The version of Unicode is that of Python's unicodedata, 14 in Python 3.11.
"""
import html
import html.entities
import sys
import textwrap
import unicodedata
from pathlib import Path

OUTPUT = Path(__file__).resolve().parents[2] / "lib" / "text" / "text_tables.cpp"


def codes(text):
    return ".".join(f"{ord(c):x}" for c in text)


def upper_names():
    """&EACUTE; and the like, which ftfy knows beside the names of HTML."""
    names = html.entities.html5.items()
    return {n.upper(): v.upper() for n, v in names
            if n.endswith(";") and n == n.lower() and html.unescape("&" + n.upper()) == "&" + n.upper()}


def characters():
    return (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)


def decompositions():
    """Of one step; Hangul is computed. Those that NFC does not put together again end in !."""
    for c in characters():
        parts = unicodedata.decomposition(c)
        if parts and not parts.startswith("<"):
            text = "".join(chr(int(part, 16)) for part in parts.split())
            yield f"{codes(c)}={codes(text)}" + ("" if unicodedata.normalize("NFC", c) == c else "!")


def classes():
    """Canonical combining classes other than 0, as first-last:class."""
    runs = []
    for c in characters():
        number = unicodedata.combining(c)
        if number and runs and runs[-1][2] == number and runs[-1][1] == ord(c) - 1:
            runs[-1][1] = ord(c)
        elif number:
            runs.append([ord(c), ord(c), number])
    return [f"{first:x}-{last:x}:{number}" for first, last, number in runs]


def widths():
    """Full-width and half-width forms, as ftfy replaces them."""
    for code in (0x3000, *range(0xFF01, 0xFFF0)):
        plain = unicodedata.normalize("NFKC", chr(code))
        if plain != chr(code):
            yield f"{code:x}={codes(plain)}"


def literal(name, words):
    lines = textwrap.wrap(" ".join(words), 90, break_long_words=False, break_on_hyphens=False)
    body = "\n".join(f'    "{line} "' for line in lines)
    return f"const std::string_view {name} =\n{body};\n"


def main():
    names = {name: codes(value) for name, value in html.entities.html5.items()}
    tables = [
        literal("html_names", [f"{name}={value}" for name, value in sorted(names.items())]),
        literal("upper_case_html_names", [f"{n}={codes(v)}" for n, v in sorted(upper_names().items())]),
        literal("canonical_decompositions", decompositions()),
        literal("combining_classes", classes()),
        literal("width_forms", widths())]
    OUTPUT.write_text(
        f"// Written by tools/reference/make_text_tables.py, Unicode {unicodedata.unidata_version}.\n"
        '#include "text/text_tables.hpp"\n\nnamespace reelmesh {\n\n// clang-format off\n'
        + "\n".join(tables) + "// clang-format on\n\n}  // namespace reelmesh\n")


if __name__ == "__main__":
    main()

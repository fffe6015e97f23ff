#!/usr/bin/env python3
"""Writes lib/text/html_names.cpp: the named characters of HTML 5.

    python3 tools/reference/make_html_names.py
"""
import html
import html.entities
import textwrap
from pathlib import Path

OUTPUT = Path(__file__).resolve().parents[2] / "lib" / "text" / "html_names.cpp"


def codes(text):
    return ".".join(f"{ord(c):x}" for c in text)


def upper_names():
    """&EACUTE; and the like, which ftfy knows beside the names of HTML."""
    names = html.entities.html5.items()
    return {n.upper(): v.upper() for n, v in names
            if n.endswith(";") and n == n.lower() and html.unescape("&" + n.upper()) == "&" + n.upper()}


def literal(name, words):
    lines = textwrap.wrap(" ".join(words), 90, break_long_words=False, break_on_hyphens=False)
    body = "\n".join(f'    "{line} "' for line in lines)
    return f"const std::string_view {name} =\n{body};\n"


def main():
    names = {name: codes(value) for name, value in html.entities.html5.items()}
    tables = [
        literal("html_names", [f"{name}={value}" for name, value in sorted(names.items())]),
        literal("upper_case_html_names", [f"{n}={codes(v)}" for n, v in sorted(upper_names().items())])]
    OUTPUT.write_text(
        "// Written by tools/reference/make_html_names.py.\n"
        '#include "text/html_names.hpp"\n\nnamespace reelmesh {\n\n// clang-format off\n'
        + "\n".join(tables) + "// clang-format on\n\n}  // namespace reelmesh\n")


if __name__ == "__main__":
    main()

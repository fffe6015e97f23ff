"""Pieces of HTML. Everything that comes from files goes through text()."""
import html
import re

TAGS = re.compile("<[^>]*>")
LONG = 24  # letters of a cell that is not made narrow
NOT_ALLOWED = re.compile("[^\n\t\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")


def text(value):
    """Escapes a value for use as content and within quoted attributes; control characters and
    halves of surrogate pairs, which HTML does not allow, become U+FFFD."""
    return html.escape(NOT_ALLOWED.sub("\ufffd", str(value)))


def table(caption, columns, rows, wide=True):
    """columns: (heading, 'text' or 'number'); rows: lists of HTML. The first cell is a heading."""
    head = "".join(f'<th scope="col" class="{kind}">{text(name)}</th>' for name, kind in columns)
    body = "".join(
        "<tr>" + "".join(
            f'<th scope="row" class="{kind}">{cell}</th>' if place == 0 else
            f'<td class="{kind}{" long" if len(TAGS.sub("", cell)) > LONG else ""}">{cell}</td>'
            for place, (cell, (_, kind)) in enumerate(zip(row, columns))) + "</tr>"
        for row in rows)
    found = (f'<table><caption>{text(caption)}</caption><thead><tr>{head}</tr></thead>'
             f'<tbody>{body}</tbody></table>')
    # Wide tables scroll by themselves on a narrow screen, and can be reached by keyboard.
    return (f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">{found}'
            '</div>') if wide else found


def bar(parts, label, mark=0):
    """parts: (share of the whole, colour); mark: place of a line across it, 0: none."""
    return (f'<span class="bar" role="img" aria-label="{text(label)}">' + "".join(
        f'<i style="width:{max(0, share) * 100:.2f}%;background:{colour}"></i>'
        for share, colour in parts if share > 0)
        + (f'<b style="left:{mark * 100:.2f}%"></b>' if mark else "") + "</span>")


def swatch(colour):
    return f'<i class="swatch" style="background:{colour}"></i>'


def section(name, title, content):
    return (f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">'
            f'{text(title)}</h2>{content}</section>')

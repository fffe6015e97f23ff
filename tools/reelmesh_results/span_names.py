"""Names of spans, lanes and trace levels, read from lib/base/span_names.hpp: span_names.hpp beside
this file is a link to it, and a copy where pip has installed the package."""
import pathlib
import re
import textwrap
import types
import typing

HEADER = pathlib.Path(__file__).with_name("span_names.hpp").resolve()


class Span(typing.NamedTuple):
    level: str
    lane: str
    meaning: str


def parse(text):
    """Text of the header → levels, lanes, and name → Span, in its order. ValueError if a line is
    not written as the others."""
    levels = re.search(r'^inline constexpr .* level_names\{(.*)\};$', text, re.M)
    if levels is None:
        raise ValueError(f"{HEADER}: found no level_names")
    levels = re.findall(r'"(\w+)"', levels[1])
    lanes, spans = [], {}
    for line in text.splitlines():
        if re.match(r"inline constexpr const char\*", line):
            lane = re.fullmatch(r'inline constexpr const char\* (\w+) = "\1";', line)
            if lane is None:
                raise ValueError(f'{HEADER}: found "{line}", expected a lane')
            lanes.append(lane[1])
        elif re.match(r"inline constexpr SpanKind", line):
            span = re.fullmatch(r'inline constexpr SpanKind (\w+)\{"\1", Level::(\w+), '
                                r'lanes::(\w+), "([^"\\]+)"\};', line)
            if span is None or span[1] in spans or span[2] not in levels or span[3] not in lanes:
                raise ValueError(f'{HEADER}: found "{line}", expected a span')
            spans[span[1]] = Span(*span.groups()[1:])
    return tuple(levels), tuple(lanes), spans


LEVELS, LANES, SPANS = parse(HEADER.read_text(encoding="utf-8"))
# Each name as an attribute, so that another one is an error: names.decode is "decode".
lanes = types.SimpleNamespace(**{lane: lane for lane in LANES})
names = types.SimpleNamespace(**{span: span for span in SPANS})


def up_to(level):
    """The names of the spans that are recorded at a trace level."""
    return tuple(name for name, span in SPANS.items()
                 if LEVELS.index(span.level) <= LEVELS.index(level))


def listed():
    """All spans as text for people, in lines of at most 100 characters."""
    width = max(map(len, SPANS))
    lines = []
    for name, span in SPANS.items():
        begin = f"  {name:<{width}}  {span.level:<6}  {span.lane:<8}  "
        lines += textwrap.wrap(span.meaning.replace("`", ""), 100, initial_indent=begin,
                               subsequent_indent=" " * len(begin))
    return "\n".join(lines)

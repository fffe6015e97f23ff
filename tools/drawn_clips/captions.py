"""Converts scenes to sentences, in varied wordings for training, and sentences back to scenes.

Files of pictures are named after what they show: 007_red_circle_on_blue_at_30_25.png.
"""
import re

from .scenes import ALL_MOTIONS, BACKGROUNDS, COLOURS, DIRECTIONS, SHAPES, SIZES, SPEEDS

_GO = ["moves", "slides", "drifts", "goes", "glides"]
_TO = {
    "left": ["left", "to the left"], "right": ["right", "to the right"],
    "up": ["up", "upwards"], "down": ["down", "downwards"],
    "up left": ["up left", "up and left", "to the upper left", "diagonally up left"],
    "up right": ["up right", "up and right", "to the upper right", "diagonally up right"],
    "down left": ["down left", "down and left", "to the lower left", "diagonally down left"],
    "down right": ["down right", "down and right", "to the lower right", "diagonally down right"]}
_SINGLE = {"up": ["rises", "climbs"], "down": ["sinks", "falls"]}
_CHANGE = {
    "grow": ["grows", "gets bigger", "expands", "swells"],
    "shrink": ["shrinks", "gets smaller", "contracts"],
    "turn": ["turns", "rotates", "spins", "turns around"],
    "blink": ["blinks", "flashes", "flickers"],
    "still": ["stays still", "does not move", "rests", "stands still"],
    "jump": ["jumps", "jumps up and down"]}
_FAST = {"slowly": ["slowly"], "quickly": ["quickly", "fast"]}
_OVER = ["over a {} field", "on a {} background", "over a {} background", "against a {} backdrop",
         "on a {} field", "over {}", "on {}"]
_SUBJECTS = ["it", "the shape", ""]
_FORMS = [("{0} {b}", "{0} {b}; {1}"), ("{b}, {0}", "{b}, {0} and {1}"),
          ("{0} {b}", "{0} and {1} {b}"), ("{b}: {0}", "{b}: {0}; {1}"),
          ("{0} {b}", "{0}, {1}, {b}"), ("{0} {b}", "{0} {b} and {1}")]


def _pick(rng, options):
    # The first wording is the plain one; it is chosen about half of the time.
    return options[0 if rng.random() < 0.35 else rng.integers(len(options))]


def _motion(rng, motion, speed):
    fast = _pick(rng, _FAST[speed]) if speed else ""
    if motion not in DIRECTIONS:
        return _pick(rng, _CHANGE[motion])
    if motion in _SINGLE and rng.random() < 0.35:
        return f"{_pick(rng, _SINGLE[motion])} {fast}".strip()
    go, to = _pick(rng, _GO), _pick(rng, _TO[motion])
    return " ".join((go, fast, to) if rng.random() < 0.5 else (go, to, fast)).replace("  ", " ")


def caption(rng, labels, index):
    """A sentence for scene `index`."""
    things = []
    for slot in range(labels.count[index]):
        colour = COLOURS[labels.colour[index, slot]]
        size = SIZES[labels.size[index, slot]]
        size = "big" if size == "large" and rng.random() < 0.3 else size
        words = [size, colour, SHAPES[labels.shape[index, slot]],
                 _motion(rng, ALL_MOTIONS[labels.motion[index, slot]],
                         SPEEDS[labels.speed[index, slot]])]
        article = "an" if next(w for w in words if w)[0] == "o" else "a"
        things.append(" ".join(" ".join((article, *words)).split()))
    form = _FORMS[0 if rng.random() < 0.3 else rng.integers(len(_FORMS))][len(things) - 1]
    back = _pick(rng, _OVER).format(BACKGROUNDS[labels.background[index]])
    text = form.format(*things, b=back).strip()
    if rng.random() < 0.25:
        text = text[0].upper() + text[1:]
    return text + ("." if rng.random() < 0.25 else "")


def motion_caption(rng, labels, index):
    """A sentence that only says how the shape of scene `index` moves."""
    motion = _motion(rng, ALL_MOTIONS[labels.motion[index, 0]], SPEEDS[labels.speed[index, 0]])
    text = f"{_pick(rng, _SUBJECTS)} {motion}".strip()
    if rng.random() < 0.25:
        text = text[0].upper() + text[1:]
    return text + ("." if rng.random() < 0.25 else "")


_KEYS = [  # motion: the first pattern that matches the words after a shape
    ("grow", r"grow|bigger|expand|swell"), ("shrink", r"shrink|smaller|contract"),
    ("jump", r"\bjump"), ("turn", r"turn|rotat|spin"), ("blink", r"blink|flash|flicker"),
    ("up left", r"up(wards)? (and )?(to the )?left|upper left"),
    ("up right", r"up(wards)? (and )?(to the )?right|upper right"),
    ("down left", r"down(wards)? (and )?(to the )?left|lower left"),
    ("down right", r"down(wards)? (and )?(to the )?right|lower right"),
    ("left", r"\bleft\b"), ("right", r"\bright\b"), ("up", r"\bup|\brise|\bclimb"),
    ("down", r"\bdown|\bsink|\bfall"), ("still", r"still|not move|rests")]


def parse_motion(text):
    """The motion that the words after a shape describe."""
    return next((name for name, key in _KEYS if re.search(key, text.lower())), "still")


def parse(text):
    """The scene that a sentence describes: (background or None, [(colour, shape, motion), ...])."""
    text = text.lower()
    colours, shapes = "|".join(COLOURS), "|".join(SHAPES)
    things = list(re.finditer(rf"\b({colours}) ({shapes})\b", text))
    found = []
    for this, after in zip(things, [*things[1:], None]):
        rest = text[this.end():after.start() if after else len(text)]
        found.append((this[1], this[2], parse_motion(rest)))
    names = "|".join(BACKGROUNDS)
    back = (re.search(rf"\b({names}) (?:field|background|backdrop)", text)
            or re.search(rf"\b(?:over|on) ({names})\b(?! (?:{shapes}))", text))
    return (back[1] if back else None), found


def picture_name(labels, index):
    """The name of the file with the first frame of scene `index`, without number and suffix."""
    x, y = labels.centre[index, 0, 0].round().astype(int)
    return (f"{COLOURS[labels.colour[index, 0]]}_{SHAPES[labels.shape[index, 0]]}_on_"
            f"{BACKGROUNDS[labels.background[index]]}_at_{x}_{y}")


def parse_picture(name):
    """What a picture shows, from its file's name: (background, colour, shape, (x, y))."""
    found = re.search(rf"({'|'.join(COLOURS)})_({'|'.join(SHAPES)})_on_({'|'.join(BACKGROUNDS)})"
                      r"_at_(\d+)_(\d+)", name)
    if not found:
        raise ValueError(f"{name}: expected a name like 007_red_circle_on_blue_at_30_25.png")
    colour, shape, back, x, y = found.groups()
    return back, colour, shape, (int(x), int(y))

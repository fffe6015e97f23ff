"""Contact sheets: frames of clips side by side, with their times and prompts."""
import bisect
import contextlib
import dataclasses
import pathlib

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .errors import fail

PAPER, INK, FAINT = (255, 255, 255), (25, 25, 30), (110, 112, 118)
GAP, SPACE, MARGIN = 4, 26, 18  # pixels: between frames, between clips, around the sheet
SMALL, LARGE = 160, 240  # pixels: frames of less height are enlarged, of more height reduced
LINE = 1840  # pixels: maximum width of a row of frames
MANY = 8  # with more clips, the sheet has columns, FEW frames per clip and at most MAX_CLIPS clips
FEW, MAX_CLIPS = 4, 400
WIDE = 4000  # pixels: maximum width of a sheet with several columns
BORDER = (190, 192, 196)


@dataclasses.dataclass
class Strip:
    """Some frames of a clip, resized for the sheet, and their times in seconds."""
    frames: list
    times: list


def font(size):
    with contextlib.suppress(OSError):
        return ImageFont.truetype("DejaVuSans.ttf", size)
    with contextlib.suppress(ImportError, OSError):  # Matplotlib has it outside Debian
        import matplotlib
        folder = pathlib.Path(matplotlib.get_data_path(), "fonts", "ttf")
        return ImageFont.truetype(str(folder / "DejaVuSans.ttf"), size)
    fail(69, "the font DejaVuSans.ttf is not installed, and Matplotlib, which has it, is neither; on "
             "Debian: apt install fonts-dejavu-core")


def spread(count, most):
    """At most `most` of the numbers 0 … count − 1, evenly spaced, with the first and the last."""
    return np.unique(np.rint(np.linspace(0, count - 1, min(most, count))).astype(int)).tolist()


def strip(clip, most):
    indices = spread(clip.frames, most)
    return Strip([_fitted(Image.fromarray(clip.frame(i))) for i in indices],
                 [i / clip.fps for i in indices])


def _fitted(frame):
    width, height = frame.size
    times = min(-(-SMALL // height), LINE // width)
    if times > 1:  # by an integer factor, so that each pixel becomes a square of one colour
        return frame.resize((width * times, height * times), Image.NEAREST)
    less = min(LARGE / height, LINE / width)
    if less >= 1:
        return frame
    return frame.resize((max(1, round(width * less)), max(1, round(height * less))), Image.LANCZOS)


def wrapped(text, width, face, lines=None):
    """The text in lines of at most `width` pixels; text beyond `lines` lines is replaced by '…'."""
    done, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if face.getlength(longer) <= width:
            line = longer
            continue
        if line:
            done.append(line)
        while face.getlength(word) > width and len(word) > 1:  # a word longer than the sheet
            fits = bisect.bisect(range(1, len(word)), width, key=lambda n: face.getlength(word[:n]))
            done.append(word[:max(1, fits)])
            word = word[max(1, fits):]
        line = word
    done.append(line)
    if lines and len(done) > lines:
        last = done[lines - 1]
        while last and face.getlength(last + " …") > width:
            last = last[:-1]
        done[lines - 1:] = [last.rstrip() + " …"]
    return done


def _frames(strip):
    """The frames as one picture, with their times below, in rows of about equal length."""
    width, height = (side + 2 for side in strip.frames[0].size)  # with a thin line around it
    fit = max(1, (LINE + GAP) // (width + GAP))
    lines = -(-len(strip.frames) // fit)
    across = -(-len(strip.frames) // lines)
    small, below = font(14), 22
    picture = Image.new("RGB", (across * (width + GAP) - GAP, lines * (height + below)), PAPER)
    draw = ImageDraw.Draw(picture)
    for i, (frame, time) in enumerate(zip(strip.frames, strip.times)):
        x, y = i % across * (width + GAP), i // across * (height + below)
        draw.rectangle((x, y, x + width - 1, y + height - 1), outline=BORDER)
        picture.paste(frame, (x + 1, y + 1))
        draw.text((x + width / 2, y + height + 3), f"{time:.2f} s", FAINT, small, anchor="ma")
    return picture


def _captioned(strip, texts, least):
    """Frames with text below. texts: (text, font size, colour, maximum number of lines)."""
    frames = _frames(strip)
    width = max(frames.width, least)
    lines = [(line, font(size), colour, round(size * 1.35))
             for text, size, colour, most in texts
             for line in wrapped(text, width, font(size), most)]
    picture = Image.new("RGB", (width, frames.height + 6 + sum(line[3] for line in lines)), PAPER)
    picture.paste(frames, (0, 0))
    draw, y = ImageDraw.Draw(picture), frames.height + 6
    for line, face, colour, high in lines:
        draw.text((0, y), line, colour, face)
        y += high
    return picture


def _with_margin(picture):
    sheet = Image.new("RGB", (picture.width + 2 * MARGIN, picture.height + 2 * MARGIN), PAPER)
    sheet.paste(picture, (MARGIN, MARGIN))
    return sheet


def of_clip(clip, strip):
    facts = " · ".join([clip.name, *clip.facts])
    return _with_margin(_captioned(strip, [(clip.prompt, 22, INK, None), (facts, 15, FAINT, 3)],
                                   least=600))


def cell(clip, strip, clips):
    """The picture of one clip in the sheet of a job with this number of clips."""
    if clips > MANY:
        keep = spread(len(strip.frames), FEW)
        strip = Strip([strip.frames[i] for i in keep], [strip.times[i] for i in keep])
    facts = [clip.name, *(fact for fact in clip.facts if fact.startswith(("seed ", "preview ")))]
    return _captioned(strip, [(clip.prompt, 22, INK, 3), (" · ".join(facts), 15, FAINT, 1)],
                      least=360)


def of_job(cells):
    """The sheet of a job: cells below each other, in several columns if there are many."""
    wide = max(one.width for one in cells) + SPACE
    columns = min(max(1, WIDE // wide), -(-len(cells) // MANY))
    lines = [cells[i:i + columns] for i in range(0, len(cells), columns)]
    heights = [max(one.height for one in line) + SPACE for line in lines]
    picture = Image.new("RGB", (wide * columns - SPACE, sum(heights) - SPACE), PAPER)
    for number, line in enumerate(lines):
        for column, one in enumerate(line):
            picture.paste(one, (column * wide, sum(heights[:number])))
    return _with_margin(picture)

"""A picture of one frame of two clips and their difference, amplified."""
import numpy as np
from PIL import Image, ImageDraw

from . import sheet
from .clips import Clip
from .quality import psnr

MIN_HEIGHT = 256  # pixels: frames of less height are enlarged by an integer factor


def of(name, path_a, path_b, difference):
    """difference: that of the clips' videos."""
    with Clip(path_a) as a, Clip(path_b) as b:
        index = difference.worst_frame
        frames = a.frame(index), b.frame(index)
        prompt, time = a.prompt, index / a.fps
    absolute = np.abs(frames[0].astype(int) - frames[1])
    factor = 2 ** int(np.log2(max(1, 255 // max(1, absolute.max()))))
    panels = [("A", frames[0]), ("B", frames[1]),
              (f"|A − B| × {factor}", (absolute * factor).astype(np.uint8))]
    titles = [(f"{name}, frame {index} at {time:.2f} s: PSNR of this frame "
               f"{psnr((absolute ** 2).mean()):.2f} dB, of the clip {difference.psnr:.2f} dB; "
               f"largest difference in this frame {absolute.max()} of 255", 16, sheet.INK),
              (prompt, 16, sheet.FAINT), (f"A: {path_a}", 14, sheet.FAINT),
              (f"B: {path_b}", 14, sheet.FAINT)]
    return _drawn(panels, titles)


def _drawn(panels, titles):
    height, width = panels[0][1].shape[:2]
    times = max(1, -(-MIN_HEIGHT // height))
    height, width, above = height * times, width * times, 26
    across = 3 * width + 2 * sheet.GAP
    lines = [(line, sheet.font(size), colour, round(size * 1.4)) for text, size, colour in titles
             for line in sheet.wrapped(text, max(across, 600), sheet.font(size), 3)]
    picture = Image.new("RGB", (max(across, 600) + 2 * sheet.MARGIN,
                                above + height + 10 + sum(line[3] for line in lines)
                                + 2 * sheet.MARGIN), sheet.PAPER)
    draw = ImageDraw.Draw(picture)
    for i, (title, frame) in enumerate(panels):
        x, y = sheet.MARGIN + i * (width + sheet.GAP), sheet.MARGIN
        draw.text((x, y), title, sheet.INK, sheet.font(16))
        picture.paste(Image.fromarray(frame).resize((width, height), Image.NEAREST), (x, y + above))
    y = sheet.MARGIN + above + height + 10
    for line, face, colour, high in lines:
        draw.text((sheet.MARGIN, y), line, colour, face)
        y += high
    return picture

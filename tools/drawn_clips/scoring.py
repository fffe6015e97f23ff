"""Recognises what a clip shows by classic image processing, and compares it with the prompt.

The palette is known, and shapes are flat and separate. So the background is the median colour of
the border, and a thing is the largest connected patch of its colour. The coverage of a pixel
follows from its colour, which lies between thing and background. The shape is the best-fitting
template (drawn with the same area and centre, at angles in small steps). The motion follows from
the changes of centre, area and angle. Needs only numpy.
"""
import dataclasses

import numpy as np

from . import captions, drawing
from .scenes import DIRECTIONS, PALETTE, SHAPES

NAMES = list(PALETTE)
MIN_CORE_PIXELS = 10  # minimum pixels of a patch without its edge
MIN_CONTRAST = 40  # minimum difference of thing and background in one channel, of 255
MOVED = 4.5  # minimum pixels from the first to the last frame
JUMPED = 5.0  # minimum pixels from either end of the path up to its top, maximum between the ends
GREW = 1.5  # minimum ratio of areas
TURNED = 30.0  # minimum degrees
STEP = 5  # degrees between templates
KEPT = 3.0  # maximum pixels from the place in the picture to that in the first frame
AREA = {"circle": np.pi, "square": 4 * drawing.APOTHEM["square"] ** 2,
        "triangle": 3 * 3 ** 0.5 * drawing.APOTHEM["triangle"] ** 2}  # area for radius 1
PERIOD = {"circle": STEP, "square": 90, "triangle": 120}


@dataclasses.dataclass
class Thing:
    """A thing of the prompt or picture, as found in the clip (None: its colour was not found)."""
    colour: str
    found: bool
    shape: str | None = None
    motion: str | None = None
    edge: float = 0.0  # width of its edge in pixels; drawn: about 1
    first: tuple | None = None  # x and y of its centre where it is first seen


def _neighbours(mask):
    """The mask shifted by one pixel to each of four sides, along the last two axes."""
    padded = np.pad(mask, [(0, 0)] * (mask.ndim - 2) + [(1, 1), (1, 1)])
    return (padded[..., :-2, 1:-1], padded[..., 2:, 1:-1],
            padded[..., 1:-1, :-2], padded[..., 1:-1, 2:])


def _shrunk(mask):
    return mask & np.logical_and.reduce(_neighbours(mask))


def _widened(mask, times):
    for _ in range(times):
        mask = mask | np.logical_or.reduce(_neighbours(mask))
    return mask


def _largest_patch(mask):
    """The largest connected part of a mask [H, W]."""
    left, best = mask.copy(), np.zeros_like(mask)
    while left.sum() > best.sum():
        patch = np.zeros_like(mask)
        patch[np.unravel_index(left.argmax(), mask.shape)] = True
        while True:
            more = _widened(patch, 1) & mask
            if (more == patch).all():
                break
            patch = more
        left &= ~patch
        best = patch if patch.sum() > best.sum() else best
    return best


def _templates_fit(cover, centre, area):
    """Shape -> (smallest difference from a template, angle of that template in degrees)."""
    found = {}
    for shape in SHAPES:
        angles = np.deg2rad(np.arange(0, PERIOD[shape], STEP))
        n = len(angles)
        drawn = drawing.coverage(shape, np.tile(centre, (n, 1)),
                                 np.full(n, (area / AREA[shape]) ** 0.5), angles, len(cover))
        differences = np.abs(drawn - cover).sum((1, 2)) / area
        found[shape] = differences.min(), int(differences.argmin()) * STEP
    return found


def _motion(seen, centres, areas, angles, period):
    first, last = np.flatnonzero(seen)[[0, -1]]
    if len(seen) - seen.sum() >= 2 and (~seen[first:last]).sum() >= 1:
        return "blink"
    way = centres[-1] - centres[0]
    if np.hypot(*way) <= JUMPED and min(centres[[0, -1], 1]) - centres[:, 1].min() > JUMPED:
        return "jump"
    if np.hypot(*way) > MOVED:
        names = list(DIRECTIONS)
        units = np.array([DIRECTIONS[name] / np.hypot(*DIRECTIONS[name]) for name in names])
        return names[int((units @ way).argmax())]
    ratio = areas[-1] / areas[0]
    if ratio > GREW or ratio < 1 / GREW:
        return "grow" if ratio > GREW else "shrink"
    steps = (np.diff(angles) + period / 2) % period - period / 2
    return "turn" if abs(steps.sum()) > TURNED else "still"


def _look_for(colour, video, back, names):
    """Finds the thing of this colour. video: float [T, H, W, 3]; names: index of the nearest
    palette colour, [T, H, W]."""
    toward = np.array(PALETTE[colour], float) - back
    core = _shrunk(names == NAMES.index(colour))
    seen = core.sum((1, 2)) >= MIN_CORE_PIXELS
    if seen.sum() < len(video) * 0.3 or np.abs(toward).max() < MIN_CONTRAST:
        return Thing(colour, False)
    centres, areas, fits, edges = [], [], [], []
    for frame, inner in zip(video[seen], core[seen]):
        near = _widened(_largest_patch(inner), 3)
        cover = np.clip((frame - back) @ toward / (toward @ toward), 0, 1) * near
        cover[cover < 0.1] = 0
        area = cover.sum()
        y, x = np.indices(cover.shape) + 0.5
        centre = np.array([(cover * x).sum(), (cover * y).sum()]) / area
        fits.append(_templates_fit(cover, centre, area))
        centres.append(centre)
        areas.append(area)
        between = ((cover > 0.15) & (cover < 0.85)).sum()
        edges.append(between / (0.7 * 2 * (np.pi * area) ** 0.5))
    shape = min(SHAPES, key=lambda name: sum(fit[name][0] for fit in fits))
    turned = "triangle" if shape == "triangle" else "square"
    angles = np.array([fit[turned][1] if shape != "circle" else 0 for fit in fits])
    motion = _motion(seen, np.array(centres), areas, angles, PERIOD[turned])
    return Thing(colour, True, shape, motion, float(np.mean(edges)),
                 tuple(float(value) for value in centres[0]))


def look(video, colours):
    """uint8 [T, H, W, 3] → (name of the background, things of these colours, unexpected_patches,
    flicker).

    unexpected_patches: number of other colours that have a patch in at least three frames.
    flicker: mean change of the background from frame to frame, in grey levels.
    """
    video = video.astype(float)
    border = np.concatenate([video[:, 0], video[:, -1], video[:, :, 0], video[:, :, -1]], 1)
    back = np.median(border.reshape(-1, 3), 0)
    palette = np.array([PALETTE[name] for name in NAMES], float)
    ground = NAMES[int(((palette - back) ** 2).sum(1).argmin())]
    distances = np.stack([((video - rgb) ** 2).sum(-1) for rgb in palette], -1)
    names = distances.argmin(-1)
    unexpected_patches = sum(
        (_shrunk(_shrunk(names == i)).sum((1, 2)) >= MIN_CORE_PIXELS).sum() >= 3
        for i, name in enumerate(NAMES) if name not in colours and name != ground)
    still = names == NAMES.index(ground)
    both = still[1:] & still[:-1]
    flicker = float(np.abs(np.diff(video, axis=0)).mean(-1)[both].mean()) if both.any() else 0.0
    things = [_look_for(c, video, back, names) for c in colours]
    return ground, things, int(unexpected_patches), flicker


def score(video, prompt, picture=None):
    """A dict of what is right in the clip: lists over the things, and single values.

    picture: name of the file that the clip begins from, which tells what it shows; then the prompt
    tells only the motion. Without it the prompt tells all.
    """
    if picture is None:
        back, things = captions.parse(prompt)
    else:
        back, colour, shape, place = captions.parse_picture(picture)
        things = [(colour, shape, captions.parse_motion(prompt))]
    ground, found, unexpected_patches, flicker = look(video, [colour for colour, _, _ in things])
    right = {
        "colour": [thing.found for thing in found],
        "shape": [thing.shape == shape for thing, (_, shape, _) in zip(found, things)],
        "motion": [thing.motion == motion for thing, (_, _, motion) in zip(found, things)]}
    if picture is not None:
        right["place"] = [thing.found and float(np.hypot(*np.subtract(thing.first, place))) <= KEPT
                          for thing in found]
    clip = all(map(all, right.values())) and back in (None, ground) and not unexpected_patches
    return {**right, "background": back is None or ground == back,
            "unexpected_patches": unexpected_patches, "clip": clip,
            "edge": [thing.edge for thing in found if thing.found], "flicker": flicker,
            "prompt": prompt, "picture": picture, "found": [dataclasses.asdict(thing) for thing in found]}


def summary(scores):
    """Percentages over all things or clips, and means. "place" only of clips from pictures."""
    names = [name for name in ("colour", "shape", "motion", "place")
             if any(name in s for s in scores)]
    flat = {name: [v for s in scores for v in s.get(name, ())] for name in (*names, "edge")}
    share = {name: 100 * float(np.mean(flat[name])) for name in names}
    return {"clips": len(scores), "things": len(flat["colour"]), **share,
            "background": 100 * float(np.mean([s["background"] for s in scores])),
            "no_unexpected_patches": 100 * float(np.mean(
                [not s["unexpected_patches"] for s in scores])),
            "whole_clip": 100 * float(np.mean([s["clip"] for s in scores])),
            "edge_width": float(np.mean(flat["edge"])) if flat["edge"] else 0.0,
            "flicker": float(np.mean([s["flicker"] for s in scores]))}

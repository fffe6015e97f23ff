"""Draws scenes as clips: anti-aliased flat shapes over a flat background, in numpy."""
import numpy as np

from .scenes import BACKGROUNDS, COLOURS, FRAMES, PALETTE, SHAPES, SHAPES_MAX, SIZE

# Distance from the centre to a side, and the directions of the sides, for a shape of radius 1.
APOTHEM = {"square": 0.87, "triangle": 0.71}
SIDES = {"square": np.deg2rad([0, 90, 180, 270]), "triangle": np.deg2rad([90, 210, 330])}


def coverage(shape, centre, radius, angle, size=SIZE):
    """Fraction of each pixel covered by a shape. M shapes of one kind → [M, size, size]."""
    at = np.arange(size, dtype=np.float32) + 0.5
    x = at[None, None, :] - centre[:, 0, None, None].astype(np.float32)
    y = at[None, :, None] - centre[:, 1, None, None].astype(np.float32)
    radius = radius.astype(np.float32)[:, None, None]
    if shape == "circle":
        distance = np.sqrt(x * x + y * y) - radius
    else:
        distance = np.full((len(centre), size, size), -np.inf, np.float32)
        for side in SIDES[shape]:
            toward = (angle + side).astype(np.float32)[:, None, None]
            np.maximum(distance, x * np.cos(toward) + y * np.sin(toward), out=distance)
        distance -= APOTHEM[shape] * radius
    return np.clip(0.5 - distance, 0, 1)


def draw(scenes, frames=FRAMES, scale=1):
    """The first frames of clips of N scenes, enlarged by `scale`: uint8 [N, T, H, W, 3]."""
    size = SIZE * scale
    palette = {name: np.array(rgb, np.float32) for name, rgb in PALETTE.items()}
    n = len(scenes)
    back = np.stack([palette[name] for name in BACKGROUNDS])[scenes.background]
    clip = np.broadcast_to(back[:, None, None, None], (n, frames, size, size, 3)).copy()
    colours = np.stack([palette[name] for name in COLOURS])
    for slot in range(SHAPES_MAX):
        for index, shape in enumerate(SHAPES):
            which = np.flatnonzero((scenes.count > slot) & (scenes.shape[:, slot] == index))
            if not len(which):
                continue
            centre, radius, angle, visible = (
                a[which, slot, :frames].reshape(-1, *a.shape[3:])
                for a in (scenes.centre, scenes.radius, scenes.angle, scenes.visible))
            cover = coverage(shape, scale * centre, scale * radius, angle, size)
            cover = (cover * visible[:, None, None]).reshape(len(which), frames, size, size, 1)
            ink = colours[scenes.colour[which, slot]][:, None, None, None]
            clip[which] += cover * (ink - clip[which])
    return np.rint(clip).astype(np.uint8)

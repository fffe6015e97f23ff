"""Random scenes: shapes, their colours, sizes, motions and places, and the background.

Needs only numpy, so that tools/score_demo works without the packages for training.
A batch of N scenes has up to SHAPES_MAX shapes each; arrays are [N, S] or, per frame, [N, S, T].
"""
from dataclasses import dataclass

import numpy as np

SIZE = 64  # pixels, height and width
FRAMES = 9
SHAPES_MAX = 2

# RGB. Clearly different colours, so that each can be recognised in a picture.
PALETTE = {
    "red": (220, 35, 40), "green": (35, 165, 60), "blue": (40, 75, 225), "yellow": (245, 220, 45),
    "purple": (150, 45, 190), "orange": (250, 135, 25), "white": (245, 245, 245),
    "black": (15, 15, 18), "gray": (125, 128, 130)}
COLOURS = ["red", "green", "blue", "yellow", "purple", "orange", "white"]
BACKGROUNDS = ["black", "gray", "white", "blue", "green"]
SHAPES = ["circle", "square", "triangle"]
DIRECTIONS = {
    "left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1), "up left": (-1, -1),
    "up right": (1, -1), "down left": (-1, 1), "down right": (1, 1)}
MOTIONS = [*DIRECTIONS, "grow", "shrink", "turn", "blink", "still"]
NEW_MOTIONS = ["jump"]  # the demo's models do not know them; a LoRA can learn them
ALL_MOTIONS = [*MOTIONS, *NEW_MOTIONS]
SIZES = ["small", "", "large"]
SPEEDS = ["slowly", "", "quickly"]

RADIUS = np.array([9.0, 11.0, 13.0])  # pixels, by size; of a circle of about the same area
TRAVEL = np.array([11.0, 16.0, 23.0])  # pixels from the first to the last frame, by speed
CROWD = np.array([1.0, 0.78])  # factor on sizes, by number of shapes: two shapes are smaller
# Middle of each path, by number of shapes; the sentence names the upper left shape first. As places
# follow from the sentence, the model need not learn to choose them and can be trained in hours.
PLACES = np.array([[(32, 32), (32, 32)], [(19, 19), (45, 45)]], float)
JITTER = 2.5  # pixels: maximum random offset of PLACES
REACH = np.array([1.0, 1.24, 1.42])  # by shape: distance of the farthest point / radius
BLINK = np.array([1, 1, 0, 0, 1, 1, 0, 0, 1], dtype=bool)
TURN = np.deg2rad(9.0)  # clockwise, per frame
EDGE = 2.0  # pixels kept free at the border and between shapes

# Scenes that go on from a picture have one shape, which begins near the middle. Neither its radius
# nor, as far as its path fits into the picture, its place depends on the motion, so that only the
# sentence tells how it moves.
PICTURE_JITTER = 6.0  # pixels: maximum offset from the middle in the first frame
PICTURE_RADIUS = (9.5, 12.0)  # in the first frame
PICTURE_TRAVEL = np.array([7.0, 10.0, 14.0])  # as TRAVEL
PICTURE_GROWTH = 1.5  # last radius / first radius of growing shapes; shrinking: the inverse

# Pixels: height of a jump, whose path is centred like others. It is even within each group of frames
# that is one latent frame, which the VAE reproduces well.
JUMP = 12.0


def held_out(colour, shape, motion):
    """Whether no training clip shows this combination of indices: every ninth, evenly spread."""
    return (colour * 2 + shape * 3 + motion * 4) % 9 == 4


@dataclass
class Scenes:
    count: np.ndarray  # [N] number of shapes
    background: np.ndarray  # [N] index into BACKGROUNDS
    colour: np.ndarray  # [N, S] indices into COLOURS, SHAPES, ALL_MOTIONS, SIZES, SPEEDS
    shape: np.ndarray
    motion: np.ndarray
    size: np.ndarray
    speed: np.ndarray
    centre: np.ndarray  # [N, S, T, 2] x and y in pixels
    radius: np.ndarray  # [N, S, T]
    angle: np.ndarray  # [N, S, T] radians, clockwise
    visible: np.ndarray  # [N, S, T]

    def __len__(self):
        return len(self.count)


def _kinds(rng, n, held, motions=MOTIONS):
    """Colour, shape and motion of n × S shapes, only held-out combinations or only others."""
    table = [(c, s, ALL_MOTIONS.index(motion)) for c in range(len(COLOURS))
             for s in range(len(SHAPES)) for motion in motions
             if held_out(c, s, ALL_MOTIONS.index(motion)) == held
             and (SHAPES[s], motion) != ("circle", "turn")]
    return np.array(table)[rng.integers(len(table), size=(n, SHAPES_MAX))]


def _colours_differ(kinds, background, count):
    names = np.array(COLOURS)[kinds[..., 0]]
    back = np.array(BACKGROUNDS)[background]
    good = np.ones(len(names), bool)
    for a in range(SHAPES_MAX):
        good &= (names[:, a] != back) | (count <= a)
        for b in range(a):
            good &= (names[:, a] != names[:, b]) | (count <= a)
    return good


def _steps():
    """Way of each of MOTIONS for a travel of 1, [motions, 2]."""
    steps = np.array([*DIRECTIONS.values()] + [(0, 0)] * (len(MOTIONS) - len(DIRECTIONS)), float)
    steps[np.abs(steps).sum(1) == 2] *= 0.8
    return steps


def _starts(reach, move):
    """Lowest and highest centres [N, S, 2] in the first frame for which the path stays inside."""
    return (reach[..., None] + EDGE - np.minimum(move, 0),
            SIZE - reach[..., None] - EDGE - np.maximum(move, 0))


def _speeds(rng, motion):
    return np.where(motion < len(DIRECTIONS), rng.choice(3, size=motion.shape, p=(.25, .5, .25)), 1)


def _paths(rng, kinds, size, speed, count, tries):
    """Radius, reach and candidate centres of all shapes; candidates add an axis after N."""
    n = len(kinds)
    time = np.linspace(0, 1, FRAMES)
    motion = kinds[..., 2]
    crowd = CROWD[count - 1][:, None]
    radius = (RADIUS[size] * crowd)[..., None] * np.ones(FRAMES)
    low, high = 6.0 * crowd, 14.0 * crowd
    growing = (low[..., None] + (high - low)[..., None] * time) * np.ones((1, SHAPES_MAX, 1))
    radius = np.where((motion == MOTIONS.index("grow"))[..., None], growing, radius)
    radius = np.where((motion == MOTIONS.index("shrink"))[..., None], growing[..., ::-1], radius)
    reach = (radius * REACH[kinds[..., 1]][..., None]).max(-1)  # [N, S]

    move = _steps()[motion] * (TRAVEL[speed] * crowd)[..., None]
    start_low, start_high = _starts(reach, move)
    start = (PLACES[count - 1] - move / 2)[:, None] + JITTER * rng.uniform(
        -1, 1, (n, tries, SHAPES_MAX, 2))
    start = np.clip(start, start_low[:, None], start_high[:, None])
    return radius, reach, start[..., None, :] + move[:, None, :, None] * time[:, None]


def _clearance(centre, reach, count):
    """Minimum gap between two shapes over all frames, for each candidate: [N, tries]."""
    gap = np.full(centre.shape[:2], np.inf)
    for a in range(SHAPES_MAX):
        for b in range(a):
            distance = np.linalg.norm(centre[:, :, a] - centre[:, :, b], axis=-1).min(-1)
            here = distance - (reach[:, a] + reach[:, b])[:, None]
            gap = np.where((count > a)[:, None], np.minimum(gap, here), gap)
    return gap


def sample(rng, n, held=False, shares=(0.4, 0.6), tries=12):
    """n random scenes in which no shape leaves the picture or touches another shape."""
    return _first(n, lambda: _sample(rng, 2 * n + 16, held, shares, tries))


def sample_pictured(rng, n, held=False):
    """n random scenes of one shape, for clips that go on from a picture."""
    return _first(n, lambda: _sample_pictured(rng, 2 * n + 16, held))


def sample_jumping(rng, n, held=False):
    """n random scenes of one shape that jumps up, and is down again in the last frame."""
    return _first(n, lambda: _sample_jumping(rng, 2 * n + 16, held))


def _first(n, sample_some):
    parts = []
    while sum(len(p) for p in parts) < n:
        parts.append(sample_some())
    joined = {name: np.concatenate([getattr(p, name) for p in parts])[:n]
              for name in Scenes.__dataclass_fields__}
    return Scenes(**joined)


def _sample_pictured(rng, n, held):
    count, background = np.ones(n, int), rng.integers(len(BACKGROUNDS), size=n)
    kinds = _kinds(rng, n, held)
    motion, time = kinds[..., 2], np.linspace(0, 1, FRAMES)
    speed = _speeds(rng, motion)
    growth = ((motion == MOTIONS.index("grow")).astype(int)
              - (motion == MOTIONS.index("shrink")).astype(int))
    radius = rng.uniform(*PICTURE_RADIUS, motion.shape)
    last = radius * PICTURE_GROWTH ** growth
    radius = radius[..., None] + (last - radius)[..., None] * time
    reach = (radius * REACH[kinds[..., 1]][..., None]).max(-1)
    move = _steps()[motion] * PICTURE_TRAVEL[speed][..., None]
    low, high = _starts(reach, move)
    start = rng.uniform(np.maximum(low, SIZE / 2 - PICTURE_JITTER),
                        np.minimum(high, SIZE / 2 + PICTURE_JITTER))
    centre = start[..., None, :] + move[..., None, :] * time[:, None]
    scenes = _scenes(count, background, kinds, np.ones_like(motion), speed, centre, radius)
    return _kept(scenes, _colours_differ(kinds, background, count))


def _sample_jumping(rng, n, held):
    count, background = np.ones(n, int), rng.integers(len(BACKGROUNDS), size=n)
    kinds = _kinds(rng, n, held, ["jump"])
    size = rng.choice(3, size=kinds.shape[:2], p=(0.25, 0.5, 0.25))
    radius = RADIUS[size][..., None] * np.ones(FRAMES)
    height = JUMP * (1 - np.abs(np.linspace(-1, 1, FRAMES)))
    start = PLACES[0] + JITTER * rng.uniform(-1, 1, (n, SHAPES_MAX, 2)) + (0, JUMP / 2)
    centre = np.repeat(start[..., None, :], FRAMES, 2)
    centre[..., 1] -= height
    scenes = _scenes(count, background, kinds, size, np.ones_like(size), centre, radius)
    return _kept(scenes, _colours_differ(kinds, background, count))


def _sample(rng, n, held, shares, tries):
    count = 1 + rng.choice(SHAPES_MAX, size=n, p=shares)
    background = rng.integers(len(BACKGROUNDS), size=n)
    kinds = _kinds(rng, n, held)
    motion = kinds[..., 2]
    changes_size = np.isin(motion, [MOTIONS.index("grow"), MOTIONS.index("shrink")])
    size = np.where(changes_size, 1,
                    rng.choice(3, size=motion.shape, p=(0.25, 0.5, 0.25)))
    speed = _speeds(rng, motion)
    radius, reach, candidates = _paths(rng, kinds, size, speed, count, tries)
    gap = _clearance(candidates, reach, count)
    best = np.where((gap > EDGE).any(1), (gap > EDGE).argmax(1), gap.argmax(1))
    centre = candidates[np.arange(n), best]
    scenes = _scenes(count, background, kinds, size, speed, centre, radius)
    return _kept(scenes, _colours_differ(kinds, background, count) & (gap[np.arange(n), best] > 0))


def _scenes(count, background, kinds, size, speed, centre, radius):
    motion = kinds[..., 2]
    turning = (motion == MOTIONS.index("turn"))[..., None]
    blinking = (motion == MOTIONS.index("blink"))[..., None]
    return Scenes(
        count, background, kinds[..., 0], kinds[..., 1], motion, size, speed, centre, radius,
        np.where(turning, TURN * np.arange(FRAMES), 0.0), np.where(blinking, BLINK, True))


def _kept(scenes, keep):
    return Scenes(**{name: getattr(scenes, name)[keep] for name in Scenes.__dataclass_fields__})

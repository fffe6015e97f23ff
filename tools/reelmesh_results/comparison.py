"""Compares two clip files value by value, in blocks, by bits."""
import contextlib
import dataclasses

import numpy as np

from . import quality
from .clips import AXES, check
from .hdf5 import Damaged, attributes, dataset, opened, present, read

REQUEST = ("prompt", "negative_prompt", "seed", "steps", "guidance", "fps", "scheduler", "dtype",
           "fingerprint", "input_hash", "last_image_hash", "input_frames",
           "strength", "flow_shift", "noise_levels", "guidance_2")  # attributes; others, such as layout and model, do not change the values
BLOCK = 1 << 22  # bytes that are read at a time at least, if the array has as many


@dataclasses.dataclass
class Difference:
    """What differs between two arrays of the same shape and type."""
    shape: tuple
    differing: int = 0  # number of values whose bits differ
    largest: float = 0.0  # absolute difference; inf where only one is NaN or infinite
    total: float = 0.0  # sum of absolute differences
    scale: float = None  # largest absolute value in A, of floating-point arrays
    first: tuple = None  # indices of the first that differs
    values: tuple = None  # A's and B's value there
    psnr: float = None  # dB, and mean SSIM: of video
    ssim: float = None
    worst_frame: int = None  # of video: the frame with the largest mean square difference

    @property
    def mean(self):
        return self.total / max(1, int(np.prod(self.shape)))

    @property
    def relative(self):
        """The largest difference as a fraction of the largest absolute value in A; None for
        integers."""
        if self.scale is None:
            return None
        return self.largest / self.scale if self.scale else (np.inf if self.largest else 0.0)


@dataclasses.dataclass
class Compared:
    """The comparison of two clips. `reasons`: why they cannot be compared, if so. `only`: datasets
    that one of them lacks. `changed`: request → A's and B's value."""
    reasons: list
    only: list
    changed: dict
    arrays: dict  # name of a dataset → Difference

    @property
    def same(self):
        return not any(one.differing for one in self.arrays.values())

    @property
    def first(self):
        """(name of a dataset, its Difference): the first that differs, as computed."""
        return next((name, one) for name, one in self.arrays.items() if one.differing)


def clips(path_a, path_b):
    """Compares two clip files. Raises Damaged with a message that names the file."""
    with _open(path_a) as a, _open(path_b) as b:
        there = set(present(a, AXES)), set(present(b, AXES))
        # In the order of AXES: the first that differs shows where two runs part.
        known = [name for name in AXES if name in there[0] | there[1]]
        both = [name for name in AXES if name in there[0] & there[1]]
        reasons = [f"{name} is {_kind(a[name])} in A and {_kind(b[name])} in B" for name in both
                   if a[name].dtype != b[name].dtype or a[name].shape != b[name].shape]
        if not both:
            reasons.append("no dataset is in both")
        with naming(path_a):
            found_a = attributes(a)
        with naming(path_b):
            found_b = attributes(b)
        changed = {name: (found_a.get(name), found_b.get(name)) for name in REQUEST
                   if str(found_a.get(name)) != str(found_b.get(name))}
        arrays = {} if reasons else {name: _arrays(name, a[name], b[name], path_a, path_b)
                                     for name in both}
        return Compared(reasons, [name for name in known if name not in both], changed, arrays)


def _open(path):
    with naming(path):
        file = opened(path)
        try:
            _check_arrays(file)
        except BaseException:
            file.close()
            raise
        return file


def _check_arrays(file):
    check(file)
    for name in present(file, AXES):
        array = dataset(file, name)
        expected = f"{'uint8' if name == 'video' else 'numbers'} [{', '.join(AXES[name])}]"
        good = (array.dtype == "uint8" and array.shape[-1:] == (3,) if name == "video"
                else array.dtype.kind in "iuf" and array.dtype.itemsize <= 8)
        if not good or len(array.shape) != len(AXES[name]) or not min(array.shape):
            raise Damaged(f"{name} is {_kind(array)}, expected {expected}")


@contextlib.contextmanager
def naming(path):
    """Puts the file's name before the message of Damaged."""
    try:
        yield
    except Damaged as error:
        raise Damaged(f"{path}: {error}", error.status) from error


def _kind(array):
    return f"{array.dtype} {list(array.shape)}"


def _arrays(name, a, b, path_a, path_b):
    found = Difference(a.shape)
    row = max(1, a.dtype.itemsize * int(np.prod(a.shape[1:])))
    video = name == "video"
    step = 1 if video else max(1, BLOCK // row)
    squares, similarities = [], []
    for at in range(0, a.shape[0], step):
        with naming(path_a):
            one = read(a, slice(at, at + step))
        with naming(path_b):
            other = read(b, slice(at, at + step))
        difference = add_block(found, at, one, other)
        if video:
            square = 0.0 if difference is None else float((difference ** 2).mean())
            squares.append(square)
            similarities.append(1.0 if difference is None else quality.ssim(one[0], other[0]))
    if video and squares:
        found.psnr, found.ssim = quality.psnr(np.mean(squares)), float(np.mean(similarities))
        found.worst_frame = int(np.argmax(squares))
    return found


def add_block(found, at, a, b):
    """Adds a block that begins at index `at` of the first axis to a Difference. The absolute
    differences; None if the bits are the same."""
    if a.dtype.kind == "f" and a.size:
        finite = np.nan_to_num(np.abs(a.astype(float)), posinf=0)
        found.scale = max(found.scale or 0.0, float(finite.max()))
    bits = f"u{a.dtype.itemsize}"
    unequal = a.view(bits) != b.view(bits)
    count = int(np.count_nonzero(unequal))
    if not count:
        return None
    a, b = a.astype(float), b.astype(float)
    with np.errstate(invalid="ignore"):
        difference = np.abs(a - b)
    difference[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
    difference[np.isnan(difference)] = np.inf
    if found.first is None:
        place = np.unravel_index(int(np.argmax(unequal)), a.shape)
        found.first = (at + int(place[0]), *map(int, place[1:]))
        found.values = (float(a[place]), float(b[place]))
    found.differing += count
    found.largest = max(found.largest, float(difference.max()))
    found.total += float(difference.sum())
    return difference

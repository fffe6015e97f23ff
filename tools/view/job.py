"""Reads the clips in a job's output folder, frame by frame."""
import re

import h5py

from .errors import fail, say


class Damaged(Exception):
    """A clip file that cannot be read or has unexpected content."""


def find(out, wanted):
    """Output folder, and clip files sorted by number. wanted: numbers of clips, or None for all."""
    if not out.exists():
        fail(66, f"{out}: no such folder; expected the output folder of a job")
    if out.is_file() and out.name != "job.h5":
        return out.parent, [out]
    folder = out if out.is_dir() else out.parent
    # Only complete clips have such names; clips that are being written have hidden names.
    found = {int(path.stem): path for path in (folder / "clips").glob("*.h5")
             if re.fullmatch(r"\d{6,}", path.stem)}
    if not found:
        fail(66, f"{folder}: no clip is complete in {folder / 'clips'}")
    for number in wanted or []:
        if number not in found:
            fail(66, f"{folder}: no clip {number}; complete are {_ranges(sorted(found))}")
    _report_missing(folder, found)
    return folder, [found[number] for number in sorted(found) if not wanted or number in wanted]


def _report_missing(folder, found):
    """Reports clips that are missing according to job.h5."""
    index = folder / "job.h5"
    so_far = f"the job is not finished; complete so far: {_ranges(sorted(found))}"
    if not index.exists():
        print(f"reelmesh-view: {folder} has no job.h5: {so_far}")
        return
    try:
        with h5py.File(index, "r") as file:
            if file.attrs.get("status") == b"unfinished":
                print(f"reelmesh-view: {folder}: {so_far}")
                return
            missing = sorted({int(name) for name in file["clips"]} - set(found))
    except (OSError, KeyError, ValueError) as error:
        say(f"{index}: not the index of a job ({error}); going by the files in clips")
        return
    if missing:
        say(f"{folder}: clips {_ranges(missing)} of job.h5 are not there")


def _ranges(numbers):
    """[0, 1, 2, 5] → '0-2, 5'."""
    parts = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


class Clip:
    """An open clip file: sizes, attributes, and frames as uint8 [height, width, 3]."""

    def __init__(self, path):
        self.name = f"clip {int(path.stem)}" if path.stem.isdecimal() else path.stem
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise Damaged(f"not a readable HDF5 file: {error}") from error
        try:
            self._open(path)
        except BaseException:
            self._file.close()
            raise

    def _open(self, path):
        if "video" not in self._file:
            fail(66, f"{path}: has no video; the job was run with output.video = no")
        self._video = self._file["video"]
        shape = self._video.shape
        if self._video.dtype != "uint8" or len(shape) != 4 or shape[3] != 3 or not min(shape):
            raise Damaged(f"video is {self._video.dtype} {list(shape)}, expected uint8 "
                          "[frame, height, width, 3]")
        self.frames, self.height, self.width = shape[:3]
        attributes = {name: value.decode(errors="replace") if isinstance(value, bytes) else value
                      for name, value in self._file.attrs.items()}
        self.prompt = " ".join(str(attributes.get("prompt", "(no prompt)")).split())
        self.fps = float(attributes.get("fps", 8))
        if not 0 < self.fps < 1e6:
            raise Damaged(f"fps is {self.fps}, expected frames per second above 0")
        facts = {"seed": "seed {}", "steps": "{} steps", "guidance": "guidance {:g}",
                 "dtype": "{}"}
        self.facts = [text.format(attributes[name]) for name, text in facts.items()
                      if name in attributes]
        self.facts.append(f"{self.frames} {'frame' if self.frames == 1 else 'frames'} of "
                          f"{self.width} × {self.height}, {self.fps:g} a second")

    def frame(self, index):
        try:
            return self._video[index]
        except OSError as error:
            raise Damaged(f"frame {index} of video cannot be read: {error}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

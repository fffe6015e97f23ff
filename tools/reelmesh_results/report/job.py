"""Everything in the output folder of a job except the trace: index, clips, what a training has
written, what it does now."""
import dataclasses
import datetime
import math
import numbers
import pathlib

from .. import strict_json
from ..clips import check, file_of
from ..errors import fail
from ..hdf5 import Damaged, attributes, dataset, opened, or_fail, present, read, text
from ..index import WITH_FILE, Index
from ..outputs import folder_of
from ..training import sampled_of
from .training import Training

MOST_STEPS = 8  # of a training, whose clips are shown
ALIVE = 60  # seconds: status.json is written every two; an older one is of a job that has ended
# Settings of clips by their type.
SETTINGS = {"prompt": str, "negative_prompt": str, "seed": int, "steps": int, "guidance": float,
            "fps": float, "dtype": str, "scheduler": str, "wall_seconds": float, "image": str,
            "video": str, "strength": float, "frames": int, "height": int, "width": int,
            "stopped_after": int}


@dataclasses.dataclass
class Clip:
    """A clip of the job. state: 'complete', 'preview', 'failed', 'saved', 'missing' or
    'damaged'."""
    number: int
    path: pathlib.Path
    state: str
    reason: str = ""
    settings: dict = dataclasses.field(default_factory=dict)  # see SETTINGS
    has_video: bool = False


@dataclasses.dataclass
class Made:
    """A clip that a training has made (train.sample-every). The number of `clip` is one of all of
    them; place: its number after `step` steps."""
    step: int
    place: int
    clip: Clip


class Job:
    """`made`: of a training. `problems`: messages about files that are damaged or not there; `exit_status` fits them.
    `training`: None of a job that makes clips."""

    def __init__(self, out):
        if not out.exists():
            fail(66, f"{out}: no such folder; expected the output folder of a job")
        self.folder = folder_of(out)
        path = self.folder / "job.h5"
        if not path.exists():
            fail(66, f"{self.folder}: has no job.h5; expected the output folder of a job")
        self.problems, self.exit_status = [], 0
        with or_fail(path):
            self.index = Index(path)
        self.options = self.index.options
        self.clips = [self._clip(number) for number in _numbers(self.index)]
        self.now = self._now()
        self.training = Training(self) if self.index.is_training else None
        self.made = self._made() if self.training else []

    def problem(self, path, error):
        self.problems.append(f"{path}: {error}")
        self.exit_status = self.exit_status or getattr(error, "status", 65)

    @property
    def status(self):
        """'complete', 'failed', 'stopped', 'running' or 'unfinished' (it was killed, or an error
        ended it)."""
        if self.index.status == "unfinished" and self.now and self.now["seconds_ago"] < ALIVE:
            return "running"
        return self.index.status or "unknown"

    @property
    def shown(self):
        """All clips whose pictures the page shows."""
        return self.clips + [one.clip for one in self.made]

    def _made(self):
        found = []
        for step, folder in few(sampled_of(self.folder)):
            try:
                index = Index(folder / "job.h5")
            except Damaged as error:
                self.problem(folder / "job.h5", error)
                continue
            for place in _numbers(index):
                clip = self._clip(place, index, folder)
                clip.number = len(found)
                found.append(Made(step, place, clip))
        return found

    def _clip(self, number, index=None, folder=None):
        index, folder = index or self.index, folder or self.folder
        state, reason = index.states.get(number, ("missing", ""))
        clip = Clip(number, file_of(folder, number), state, reason)
        if number < len(index.requests):
            request = index.requests[number]
            clip.settings.update(request | _settings(request))
        if number not in index.listed:
            return clip  # a file of this name would be another job's
        if not clip.path.exists():
            if state in WITH_FILE:
                clip.state = "missing"
                clip.reason = f"job.h5 says that it is {state}, but its file is not there"
                self.problem(clip.path, Damaged(f"no such file; job.h5 says that this clip is "
                                                f"{state}", 66))
            return clip
        try:
            with opened(clip.path) as file:
                found = attributes(file)
                clip.settings.update(_settings(found))
                check(file)
                clip.has_video = bool(present(file, ["video"]))
                if clip.has_video:
                    shape = dataset(file, "video").shape
                    clip.settings.update(zip(("frames", "height", "width"), map(int, shape)))
            clip.state = "preview" if "stopped_after" in found else "complete"
            clip.reason = ""
        except Damaged as error:
            self.damaged(clip, error)
        return clip

    def check_clips(self):
        """Notes clips of which a frame cannot be read."""
        for clip in self.shown:
            if clip.has_video:
                try:
                    with opened(clip.path) as file:
                        video = dataset(file, "video")
                        read(video, len(video) // 2)
                except Damaged as error:
                    self.damaged(clip, error)

    def damaged(self, clip, error):
        clip.state, clip.reason, clip.has_video = "damaged", str(error), False
        self.problem(clip.path, error)

    def _now(self):
        """status.json, with its age in seconds; None if there is none."""
        path = self.folder / "status.json"
        try:
            found = strict_json.of_file(path)
            updated = datetime.datetime.fromisoformat(found["updated"].replace("Z", "+00:00"))
            now = datetime.datetime.now(datetime.timezone.utc)
            return found | {"seconds_ago": max(0.0, (now - updated).total_seconds())}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, OverflowError, TypeError, AttributeError) as error:
            self.problem(path, f"not a status.json of reelmesh: {error}")
            return None


def few(items):
    """The first, the last, and up to six between."""
    count = min(MOST_STEPS, len(items))
    return [items[round(i * (len(items) - 1) / max(1, count - 1))] for i in range(count)]


def _numbers(index):
    return sorted({*index.clips, *range(len(index.requests))})


def _settings(found):
    """SETTINGS among attributes or the values of a request; as texts if they have other types."""
    settings = {}
    for name, kind in SETTINGS.items():
        if name in found:
            value = found[name]
            number = (kind is not str and isinstance(value, numbers.Real) and math.isfinite(value)
                      and (kind is float or value == int(value)))
            settings[name] = kind(value) if number else text(str(value))
    return settings

"""A job and its clips as Python objects: what `reelmesh_results.open` gives."""
from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import typing
from collections.abc import Iterator, Mapping

import h5py
import numpy as np
import numpy.typing as npt

from . import clips, training
from .comparison import naming
from .errors import Error
from .hdf5 import dataset, opened, present, read
from .hdf5 import attributes as attributes_of
from .index import Index
from .outputs import folder_of, is_one_file
from .trace import SPANS, Trace

if typing.TYPE_CHECKING:
    import pandas

Array = npt.NDArray[typing.Any]
Path = typing.Union[str, "os.PathLike[str]"]

BLOCK = 64 << 20  # bytes that are read at a time at least
TEXTS = ("lane", "name")  # columns of spans


def open(out: Path) -> Job:
    """The job in an output folder, given it or its job.h5; it may be running, stopped or killed.
    Raises Error."""
    return Job(out)


class Clip:
    """One clip file. Arrays are read when they are asked for, each time anew."""

    def __init__(self, path: Path) -> None:
        """Raises Error if it is not a clip of reelmesh."""
        self.path = pathlib.Path(path)
        with self._opened() as file:
            clips.check(file)
            #: Names of the arrays that it has: "video", "latents", "token_ids", "prompt_embeds",
            #: "negative_prompt_embeds".
            self.datasets: tuple[str, ...] = tuple(present(file, clips.AXES))
            #: All attributes of the file, such as attributes["scheduler"].
            self.attributes: dict[str, typing.Any] = {
                name: value.item() if isinstance(value, np.generic) else value
                for name, value in attributes_of(file).items()}

    @property
    def number(self) -> int | None:
        """Its number in the job; None if its file has another name."""
        return int(self.path.stem) if self.path.stem.isdecimal() else None

    @property
    def prompt(self) -> str:
        return str(self._attribute("prompt"))

    @property
    def negative_prompt(self) -> str:
        return str(self.attributes.get("negative_prompt", ""))

    @property
    def seed(self) -> int:
        return int(self._attribute("seed"))

    @property
    def fps(self) -> float:
        """Frames per second."""
        return float(self._attribute("fps"))

    @property
    def video(self) -> npt.NDArray[np.uint8]:
        """[frame, height, width, channel], RGB."""
        return self.array("video")

    @property
    def latents(self) -> npt.NDArray[np.float32]:
        """[frame, channel, height, width], before the scaling for the VAE."""
        return self.array("latents")

    @property
    def token_ids(self) -> npt.NDArray[np.int32]:
        """[token]"""
        return self.array("token_ids")

    @property
    def prompt_embeds(self) -> npt.NDArray[np.float32]:
        """[token, embedding]; only of jobs with output.embeddings = yes, as the next."""
        return self.array("prompt_embeds")

    @property
    def negative_prompt_embeds(self) -> npt.NDArray[np.float32]:
        return self.array("negative_prompt_embeds")

    def array(self, name: str) -> Array:
        """The values of one of `datasets`. Raises Error, also if the clip does not have it."""
        if name not in self.datasets:
            raise Error(f"{self.path}: has no {name}, expected one of {', '.join(self.datasets)}",
                        66)
        with self._opened() as file:
            stored = dataset(file, name)
            values = np.empty(stored.shape, stored.dtype)
            row = stored.dtype.itemsize * int(np.prod(stored.shape[1:]))
            step = max(1, BLOCK // max(1, row))
            for at in range(0, len(values), step):
                values[at:at + step] = read(stored, slice(at, at + step))
        return values

    def frame(self, index: int) -> npt.NDArray[np.uint8]:
        """One frame of the video, [height, width, channel], without reading the others."""
        with naming(self.path), clips.Clip(self.path) as clip:
            if not -clip.frames <= index < clip.frames:
                raise IndexError(f"frame {index} of {clip.frames}")
            return typing.cast("npt.NDArray[np.uint8]", clip.frame(index % clip.frames))

    def _attribute(self, name: str) -> typing.Any:
        if name not in self.attributes:
            raise Error(f"{self.path}: has no attribute {name}, expected a clip of reelmesh")
        return self.attributes[name]

    @contextlib.contextmanager
    def _opened(self) -> Iterator[h5py.File]:
        with naming(self.path), opened(self.path) as file:
            yield file

    def __repr__(self) -> str:
        return f"<Clip {self.path}>"


class Clips(Mapping[int, Clip]):
    """Number → Clip, of the clips that were complete when the job was opened, by number."""

    def __init__(self, job: str, paths: dict[int, pathlib.Path]) -> None:
        self._job, self._paths = job, paths

    def __getitem__(self, number: int) -> Clip:
        if number not in self._paths:
            raise KeyError(f"{self._job} has no clip {number}; complete are "
                           f"{clips.ranges(self._paths) or 'none'}")
        return Clip(self._paths[number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __repr__(self) -> str:
        return f"<Clips {clips.ranges(self._paths)}>"


class Job:
    """A job as its files were when it was opened; open it again to see what is new."""

    def __init__(self, out: Path) -> None:
        given = pathlib.Path(out)
        if not given.exists():
            raise Error(f"{given}: no such folder; expected the output folder of a job", 66)
        if is_one_file(given):
            raise Error(f"{given}: is a file, expected the output folder of a job or its job.h5; "
                        "reelmesh_results.Clip opens a clip")
        #: The output folder.
        self.path = folder_of(given)
        with naming(self.path / "job.h5"):
            self._index = Index(self.path / "job.h5")

    @property
    def status(self) -> str:
        """"unfinished" (running or killed), "complete", "stopped", "failed" or "simulated"."""
        return str(self._index.status)

    @property
    def is_training(self) -> bool:
        """Whether it is of `reelmesh train`, which makes no clips."""
        return bool(self._index.is_training)

    @property
    def options(self) -> dict[str, str]:
        """Those in effect: options["sample.steps"]."""
        return dict(self._index.options)

    @property
    def attributes(self) -> dict[str, typing.Any]:
        """Those of job.h5, such as attributes["version"]."""
        return dict(self._index.attributes)

    @property
    def requests(self) -> list[dict[str, typing.Any]]:
        """What was asked for, of each clip, as a line of a prompt file: requests[3]["prompt"]."""
        return list(self._index.requests)

    @property
    def failed(self) -> dict[int, str]:
        """Number → reason, of the clips that have failed."""
        return {number: reason for number, (state, reason) in self._index.states.items()
                if state == "failed"}

    @functools.cached_property
    def clips(self) -> Clips:
        """Those that are complete: clips[3], len(clips), clips.values()."""
        return Clips(str(self.path), clips.complete(self.path, self._index))

    def metrics(self) -> dict[str, npt.NDArray[np.float64]]:
        """Of a training, a value for each step: "loss", "gradient_norm", "learning_rate",
        "seconds"; NaN where a killed job has lost them."""
        with naming(training.metrics_of(self.path)):
            return dict(training.metrics(self.path))

    def trace(self) -> Trace:
        """The spans block by block, with numpy alone; messages, memory. To be closed:
        `with job.trace() as trace`."""
        with naming(self.path / "trace.h5"):
            return Trace(self.path / "trace.h5")

    def ranks(self) -> list[dict[str, typing.Any]]:
        """A row for each rank: host, role, device, threads, peak memory."""
        with self.trace() as trace:
            return list(trace.rank_rows())

    def spans(self) -> pandas.DataFrame:
        """What each rank did when: a row for each span, with the columns rank, lane, name, clip,
        step, layer, start_ns, duration_ns, bytes, flops and memory_bytes; lane and name are
        categories. Times are of one clock. Needs pandas."""
        import pandas
        with naming(self.path / "trace.h5"), self.trace() as trace:
            columns: dict[str, Array] = {}
            at = 0
            for block in trace.spans():
                rows = len(block["rank"])
                for name, values in block.items():
                    if name not in columns:
                        columns[name] = np.empty(trace.count, values.dtype)
                    columns[name][at:at + rows] = values
                at += rows
            texts = {"lane": trace.lanes.texts, "name": trace.names.texts}
        order = (*SPANS, "memory_bytes")
        return pandas.DataFrame({
            name: pandas.Categorical.from_codes(columns.get(name, ()), texts[name])
            if name in TEXTS else columns.get(name, np.empty(0, np.int64)) for name in order})

    def __repr__(self) -> str:
        return f"<Job {self.path}: {self.status or 'of unknown status'}>"

"""Compares two jobs, clips or trainings: `reelmesh_results.compare`."""
from __future__ import annotations

import dataclasses
import pathlib
import typing

from . import comparison, pairs, training_comparison, training_report
from .comparison_report import Report
from .errors import Error
from .hdf5 import Damaged
from .job import Clip, Job, Path


@dataclasses.dataclass(frozen=True)
class Worst:
    """Of the clip with the lowest PSNR: its name, its files, and what differs in its video."""
    name: str
    a: pathlib.Path
    b: pathlib.Path
    video: comparison.Difference


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What a comparison found. `result`: "same" (the same bits), "different", "not comparable", or
    "damaged" (only with `damaged`). `text` and `figures`: what reelmesh-compare prints, and prints
    with --json. `worst`: None if no video differs."""
    result: str
    text: str
    figures: dict[str, typing.Any]
    worst: Worst | None = None
    of_trainings: bool = False

    @property
    def same(self) -> bool:
        return self.result == "same"

    def __str__(self) -> str:
        return self.text


def compare(a: Path | Job | Clip, b: Path | Job | Clip, *, clip: int | None = None,
            longest: int = 20,
            damaged: typing.Callable[[Error], None] | None = None) -> Comparison:
    """Compares two jobs, two clips, or two trainings bit by bit. clip: only this one of the jobs.
    longest: at most so many clips are listed in the text. damaged: called for each damaged clip,
    after which the others are compared; None: it is raised. Raises Error."""
    path_a, path_b = (one.path if isinstance(one, (Job, Clip)) else pathlib.Path(one)
                      for one in (a, b))
    if training_comparison.wanted(path_a, path_b):
        if clip is not None:
            raise Error(f"argument --clip: {path_a} and {path_b} are trainings, expected jobs that "
                        "make clips", 64)
        trained = training_comparison.of(path_a, path_b)
        return Comparison(trained.result,
                          training_report.as_text(path_a, path_b, trained, longest),
                          training_report.as_dict(path_a, path_b, trained), of_trainings=True)
    matched = pairs.of(path_a, path_b, clip)
    report = Report(path_a, path_b, matched)
    was_damaged = False
    for name, one, other in matched.pairs:
        try:
            report.add(name, comparison.clips(one, other))
        except Damaged as error:
            if damaged is None:
                raise
            damaged(error)
            was_damaged = True
    if was_damaged:
        report.result = "damaged"
    return Comparison(report.result, report.as_text(longest), report.as_dict(),
                      _worst(report, matched))


def _worst(report: Report, matched: pairs.Pairs) -> Worst | None:
    found = report.worst_video()
    if found is None:
        return None
    name, compared = found
    a, b = next((a, b) for one, a, b in matched.pairs if one == name)
    return Worst(name, a, b, compared.arrays["video"])

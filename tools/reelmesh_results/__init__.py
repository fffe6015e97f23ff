"""Results of reelmesh, read from its files: clips, spans, metrics of trainings, comparisons.

    import reelmesh_results

    job = reelmesh_results.open("OUT")            # an output folder, or its job.h5
    job.status, job.options["sample.steps"]       # "complete", "20"
    clip = job.clips[3]                           # of those that are complete
    clip.prompt, clip.seed
    clip.video                                    # uint8 [frame, height, width, channel]
    clip.latents                                  # float32 [frame, channel, height, width]
    job.spans()                                   # a pandas DataFrame, a row for each span
    reelmesh_results.compare("A", "B").result     # "same", "different" or "not comparable"

A file that is missing, damaged or of a newer version raises Error, with a message that names it.
Needs numpy and h5py, and pandas for spans(). The tools reelmesh-* use the other modules, which may
change from version to version.
"""
import importlib
import typing

if typing.TYPE_CHECKING:
    from .comparing import Comparison, compare
    from .errors import Error
    from .job import Clip, Job, open

__version__ = "0.3.0"  # that of the program
__all__ = ["Clip", "Comparison", "Error", "Job", "compare", "open"]

_MODULES = {"Clip": "job", "Comparison": "comparing", "Error": "errors", "Job": "job",
            "compare": "comparing", "open": "job"}


def __getattr__(name: str) -> typing.Any:
    # Imported at first use: a tool that lacks h5py or numpy says so itself.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

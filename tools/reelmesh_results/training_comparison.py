"""Compares two trainings by bits: what each step computed, and the LoRAs or transformers."""
import contextlib
import dataclasses

import numpy as np

from . import training
from .comparison import BLOCK, Difference, add_block, naming
from .errors import fail
from .index import Index
from .outputs import folder_of, is_one_file
from .safetensors import Safetensors

# Options that change bits; data.path and model.path do so only by what is in these places.
SECTIONS = ("data.", "train.", "lora.", "numerics.")
NO_BITS = ("data.path", "data.validation", "data.cache", "data.strict", "train.save-every",
           "train.validate-every")


@dataclasses.dataclass
class Compared:
    """`lacking`: why not everything can be compared. `steps`: how many were compared. `metrics`,
    `tensors`: name → Difference; of tensors, of those that both have."""
    lacking: list
    notes: list
    steps: int
    metrics: dict
    tensors: dict
    word: str = "LoRA"  # what they are of

    @property
    def result(self):
        """'same', 'different' or 'not comparable'."""
        return "not comparable" if self.lacking else "different" if self.first else "same"

    @property
    def first(self):
        """(name, its Difference) of the first value that differs, as computed; else None."""
        found = [(one.first[0], place, name) for place, (name, one) in
                 enumerate(self.metrics.items()) if one.differing]
        if found:
            name = min(found)[2]
            return name, self.metrics[name]
        return next(((name, one) for name, one in self.tensors.items() if one.differing), None)


def wanted(a, b):
    """Whether A and B are trainings. Raises Error if only one of them is."""
    jobs = [Index.of(folder_of(path)) if path.exists() and not is_one_file(path) else None
            for path in (a, b)]
    found = [job is not None and job.is_training for job in jobs]
    if any(found) and not all(found):
        fail(64, f"{a if found[0] else b} is of a training and {b if found[0] else a} is not: "
                 "expected two trainings, or clips of two jobs")
    return all(found)


def of(a, b):
    """Compares two trainings. Raises Damaged with a message that names the file."""
    folders = [folder_of(path) for path in (a, b)]
    jobs = [Index.of(folder) for folder in folders]
    found = Compared([], _notes(jobs), 0, {}, {})
    steps = [_metrics(folder) for folder in folders]
    for side, values in zip("AB", steps):
        if values is None:
            found.lacking.append(f"{side} has no metrics.h5")
    counts = [0 if values is None else len(values["loss"]) for values in steps]
    paths = [training.trained_of(folder) for folder in folders]
    words = [training.word_for(path) for path in paths]
    found.word = words[0]
    if None not in steps:
        if counts[0] != counts[1]:
            found.lacking.append(f"A has {counts[0]} steps and B {counts[1]}, so that their "
                                 f"{words[0]}s are of different steps")
        _compare_steps(found, *steps)
    for side, path, word in zip("AB", paths, words):
        if not path.exists():
            found.lacking.append(f"{side} has no {word}: no {path.name} in {path.parent.name}/")
    if words[0] != words[1]:
        found.lacking.append(f"A has a {words[0]} and B a {words[1]}")
    elif all(path.exists() for path in paths) and (None in steps or counts[0] == counts[1]):
        _compare_tensors(found, *paths)
    return found


def _notes(jobs):
    """What differs between what the two were asked for, and how they ended."""
    notes = []
    options = [job.options for job in jobs]
    for name in dict.fromkeys((*options[0], *options[1])):
        values = [one.get(name, "(not given)") for one in options]
        if name.startswith(SECTIONS) and name not in NO_BITS and values[0] != values[1]:
            notes.append(f"{name} differs: {values[0]} in A, {values[1]} in B")
    if len({str(job.provenance.get("weights_hash")) for job in jobs}) > 1:
        notes.append("the checkpoints have other weights")
    for side, job in zip("AB", jobs):
        if job.status != "complete":
            notes.append(f"{side} is {job.status or 'of unknown status'}: what it trained may be of "
                         "an earlier step than its metrics")
    return notes


def _metrics(folder):
    """None if there are none."""
    path = training.metrics_of(folder)
    with naming(path):
        return training.metrics(folder) if path.exists() else None


def _compare_steps(found, a, b):
    """Those that both have, without rows that one of them has lost."""
    found.steps = min(len(a["loss"]), len(b["loss"]))
    lost = [training.lost(values)[:found.steps] for values in (a, b)]
    for side, rows in zip("AB", lost):
        if rows.any():
            found.notes.append(f"{side} has lost {int(rows.sum())} steps, as the job was killed; "
                               "they are not compared")
    kept = ~(lost[0] | lost[1])
    found.steps = int(kept.sum())
    for name in training.COMPUTED:
        difference = Difference((found.steps,))
        add_block(difference, 0, *(values[name][:len(kept)][kept] for values in (a, b)))
        if difference.first is not None:
            difference.first = (int(np.flatnonzero(kept)[difference.first[0]]),)
        found.metrics[name] = difference


def _compare_tensors(found, path_a, path_b):
    with _opened(path_a) as a, _opened(path_b) as b:
        for side, here, there in (("A", a, b), ("B", b, a)):
            only = [name for name in here.tensors if name not in there.tensors]
            if only:
                more = f" and {len(only) - 1} more" if len(only) > 1 else ""
                found.lacking.append(f"only {side}'s {training.word_for(path_a)} has {only[0]}{more}")
        for name, one in a.tensors.items():
            other = b.tensors.get(name)
            if other is None:
                continue
            if (one.dtype, one.shape) != (other.dtype, other.shape):
                found.lacking.append(f"{name} is {one.dtype} {list(one.shape)} in A and "
                                     f"{other.dtype} {list(other.shape)} in B")
                continue
            found.tensors[name] = _tensor(name, one.shape, a, b, path_a, path_b)


def _tensor(name, shape, a, b, path_a, path_b):
    difference = Difference(shape)
    for (at, one), (_, other) in zip(_blocks(name, a, path_a), _blocks(name, b, path_b)):
        add_block(difference, at, one, other)
    if difference.first is not None:
        difference.first = tuple(map(int, np.unravel_index(difference.first[0], shape)))
    return difference


def _blocks(name, file, path):
    with naming(path):
        yield from file.blocks(name, BLOCK)


@contextlib.contextmanager
def _opened(path):
    with naming(path):
        file = Safetensors(path)
    with file:
        yield file

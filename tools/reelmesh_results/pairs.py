"""Which clips of two jobs are compared with each other."""
import dataclasses

from . import clips
from .errors import fail
from .index import Index
from .outputs import folder_of, is_one_file


@dataclasses.dataclass
class Pairs:
    """`pairs`: (name, A's file, B's file). `lacking`: why not all clips are compared. `notes`:
    clips that neither has."""
    pairs: list
    lacking: list
    notes: list


def of(a, b, number):
    """Pairs the clips of two jobs by their numbers, or two files. number: only this clip of a job,
    or None."""
    for path in (a, b):
        if not path.exists():
            fail(66, f"{path}: no such file or folder; expected a job's output folder or a clip")
    files = [is_one_file(path) for path in (a, b)]
    if all(files):
        if number is not None:
            fail(64, f"argument --clip: {a} and {b} are clips, expected a job's output folder")
        return Pairs([(_name(a, b), a, b)], [], [])
    if any(files) and number is None:
        fail(64, f"{a if files[0] else b} is a clip and {b if files[0] else a} a job: expected two "
                 "jobs, two clips, or --clip N")
    if number is not None:
        paths = [path if is_file else _numbered(path, number)
                 for path, is_file in zip((a, b), files)]
        return Pairs([(_name(*paths), *paths)], [], [])
    return _jobs(a, b)


def _name(a, b):
    """The name of a pair: that of the clip, or of both."""
    if a.stem == b.stem:
        return clips.name_of(a)
    return f"{a.stem} and {b.stem}"


def _numbered(path, number):
    folder = folder_of(path)
    job = Index.of(folder)
    clips.refuse_training(folder, job)
    found = clips.complete(folder, job)
    if number not in found:
        complete = f"complete are {clips.ranges(found)}" if found else "none is complete"
        fail(66, f"{folder}: no clip {number}; {complete}")
    return found[number]


def _jobs(a, b):
    found, expected = [], []
    for path in (a, b):
        folder = folder_of(path)
        job = Index.of(folder)
        found.append(clips.complete(folder, job))
        if job is None and not found[-1]:
            fail(66, f"{folder}: has no job.h5 and no clips; expected a job's output folder")
        expected.append(set(job.clips if job else found[-1]))
    lacking, notes = [], []
    if len(expected[0]) != len(expected[1]):
        lacking.append(f"A has {len(expected[0])} clips and B {len(expected[1])}")
    either = set(found[0]) | set(found[1])
    for side, one in zip("AB", found):
        if missing := sorted(either - set(one)):
            lacking.append(f"{side} has no clip {clips.ranges(missing)}")
    if neither := sorted((expected[0] | expected[1]) - either):
        notes.append(f"neither has clip {clips.ranges(neither)}: failed, or not made yet")
    if not either:
        lacking.append("neither has a complete clip")
    both = sorted(set(found[0]) & set(found[1]))
    return Pairs([(f"clip {n}", found[0][n], found[1][n]) for n in both], lacking, notes)

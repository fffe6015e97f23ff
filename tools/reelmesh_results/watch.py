"""Shows the clips of a job as they are made."""
import fcntl
import os
import struct
import time

from . import clips, strict_json
from .errors import fail, tell
from .index import Index

# How a job ended: exit status of the tool, and what it says. As reelmesh's own, where it has one.
ENDS = {"complete": (0, "the job is complete"),
        "failed": (1, "the job has ended, and some clips have failed"),
        "stopped": (75, "the job was stopped early, its state is saved: run it again to go on"),
        "simulated": (66, "the job was only simulated, it has no clips"),
        "killed": (76, "the job has ended without saying so: it was killed, or failed")}


def follow(folder, make_viewer, pause=1.0, patience=10.0):
    """Makes the files of clips as they appear, until the job has ended. Returns the exit status.
    make_viewer(number of clips of the job). pause: seconds between looks. patience: seconds after
    which a job counts as killed if it neither holds its lock nor writes its status."""
    index = folder / "job.h5"
    if not index.exists() and not (folder / "status.json").exists():
        fail(66, f"{folder}: has no job.h5; expected the output folder of a running job")
    viewer, damaged, seen = None, False, set()
    sign, changed = None, time.monotonic()
    while True:
        job, told = Index.of(folder), _status(folder)
        clips.refuse_training(folder, job)
        if viewer is None and (job or told):
            viewer = make_viewer(len(job.clips) if job else told["clips"])
        # In this order: a clip that is complete before the job ends is shown.
        end = job.status if job and job.status in ENDS else None
        if viewer is not None and _show_new(folder, viewer, seen, told, job):
            damaged = True
        if (told.get("updated"), len(seen)) != sign or _locked(folder / ".lock"):
            sign, changed = (told.get("updated"), len(seen)), time.monotonic()
        elif time.monotonic() - changed > patience:
            end = end or "killed"
        if end:
            status, words = ENDS[end]
            made = f"; {viewer.summary()}" if viewer and viewer.done else ""
            tell(f"reelmesh-view: {words}{made}")
            return 65 if damaged else status
        time.sleep(pause)


def _status(folder):
    """The content of status.json; empty if there is none. It is replaced as a whole."""
    try:
        found = strict_json.of_file(folder / "status.json")
        return found if isinstance(found, dict) and isinstance(found.get("clips"), int) else {}
    except (OSError, ValueError):
        return {}


def _show_new(folder, viewer, seen, told, job):
    """True if a clip is damaged."""
    new = {number: path for number, path in clips.complete(folder, job).items()
           if number not in seen}
    damaged = False
    total = len(job.clips) if job else told.get("clips")
    for number, path in new.items():
        seen.add(number)
        if not viewer.add(number, path):
            damaged = True
            continue
        now = _status(folder)
        tell(f"reelmesh-view: clip {number}, {len(seen)} of {total}: "
             f"{viewer.to / path.stem}.png{at_work(now)}{memory(now)}")
    if new:
        viewer.write_sheet()
    return damaged


def at_work(told):
    """What the ranks do at the moment, as text."""
    try:
        parts = [f"clip {one['clip']} {one['state']}"
                 + (f" step {one['step']}" if "step" in one else "")
                 + (f" of {one['steps']}" if "steps" in one else "")
                 for one in told.get("at_work", [])]
    except (KeyError, TypeError, AttributeError):
        return ""
    more = f" and {len(parts) - 4} more" if len(parts) > 4 else ""
    return f"; at work: {', '.join(parts[:4])}{more}" if parts else ""


def memory(told):
    """The memory of the rank that has least of its limit left, as text."""
    def shown(rank, key):
        return f"{rank['memory'][key] / 2**30:.1f}"
    try:
        ranks = [rank for rank in told.get("ranks", []) if rank.get("memory")]
        if not ranks:
            return ""
        full = max(ranks, key=lambda rank: rank["memory"]["used"] / max(1, rank["memory"]["limit"]))
        return (f"; memory: rank {int(full['rank'])} uses {shown(full, 'used')} of "
                f"{shown(full, 'limit')} GiB, others {shown(full, 'others')} GiB")
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""


def _locked(path):
    """Whether a job holds the lock of the folder. Looks without locking it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        whole = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, whole)
        return struct.unpack("hhqqi0q", found)[0] != fcntl.F_UNLCK
    except OSError:
        return False
    finally:
        os.close(file)

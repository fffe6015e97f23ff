"""Reads job.h5: what was asked for, how it was run, and what became of each clip."""
from . import strict_json
from .hdf5 import (Damaged, attributes, group, meanings, opened, or_fail, present, read, table,
                   text, texts)

MAX_RANKS = 10 ** 6
MAX_CLIPS = 10 ** 6  # their files are named by six digits
WITH_FILE = ("complete", "preview")  # states of clips that have a file


class Index:
    """The content of a job.h5, read at once. `clips`: their numbers. `listed`: those whose files,
    if they are there, are this job's and complete, or previews."""

    def __init__(self, path):
        with opened(path) as file:
            self.attributes = attributes(file)
            if self.attributes.get("program") != "reelmesh":
                raise Damaged("not the index of a job of reelmesh: it has no attribute program = "
                              "reelmesh")
            try:
                linked = {int(name) for name in group(file, "clips") or ()}
                self.requests = [_request(line) for line in texts(file, "requests")] \
                    if present(file, ["requests"]) else []
            except (OSError, RuntimeError, TypeError, ValueError) as error:
                raise Damaged(f"not the index of a job of reelmesh: {error}") from error
            provenance = group(file, "provenance")
            self.provenance = attributes(provenance) if provenance is not None else {}
            hosts = table(file, "provenance/hosts", ())
            self.hosts = None if hosts is None else read(hosts)
            self.states = _states(table(file, "states", ("clip", "state", "reason")))
            self.clips = sorted(linked | set(self.states))
            if self.clips and not 0 <= self.clips[0] <= self.clips[-1] < MAX_CLIPS:
                raise Damaged(f"it has clips {self.clips[0]} to {self.clips[-1]}, expected numbers "
                              f"from 0 to {MAX_CLIPS - 1}")
            # A job that has ended links the clips that have a file, an unfinished one all.
            self.listed = {number for number in linked if self.status == "unfinished" or
                           self.states.get(number, ("complete",))[0] in WITH_FILE}
        try:
            self.plan = _plan(self.attributes.get("plan_json") or "{}")
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise Damaged(f"its attribute plan_json is not a plan: {error}") from error

    @classmethod
    def of(cls, folder):
        """That of an output folder; None if it has none. Ends the tool if it is damaged."""
        path = folder / "job.h5"
        if not path.exists():
            return None
        with or_fail(path):
            return cls(path)

    @property
    def options(self):
        """Those in effect: "section.key" → value."""
        pairs = (line.split("=", 1) for line in str(self.attributes.get("options", "")).splitlines()
                 if "=" in line)
        return {key.strip(): value.strip() for key, value in pairs}

    @property
    def is_training(self):
        """Whether the job trains (`reelmesh train`) and makes no clips."""
        return any(key.startswith("train.") for key in self.options)

    @property
    def status(self):
        """'unfinished' (running or killed), 'complete', 'stopped', 'failed' or 'simulated'."""
        return self.attributes.get("status", "")


def _request(line):
    found = strict_json.parse(line)
    if not isinstance(found, dict):
        raise ValueError("a line of /requests is not a JSON object")
    return found


def _plan(content):
    """The parts of plan_json that the tools show."""
    found = strict_json.parse(content)
    denoise = [{name: int(one[name]) for name in ("first", "count")}
               for one in found.get("denoise") or []]
    if (any(one["first"] < 0 or one["count"] < 0 for one in denoise)
            or sum(one["count"] for one in denoise) > MAX_RANKS):
        raise ValueError(f"ranks that denoise are not between 0 and {MAX_RANKS}")
    planned = [{"rank": int(one["rank"]), "step_sent_bytes": int(one["step_sent_bytes"])}
               for one in found.get("by_rank") or [] if one.get("step_sent_bytes") is not None]
    clip = {name: int(value) for name, value in (found.get("clip") or {}).items()}
    return {"denoise": denoise, "by_rank": planned, "clip": clip}


def _states(rows):
    """clip → (state, reason)."""
    if rows is None:
        return {}
    names = meanings(rows, "state")

    def name_of(state):
        return text(state) if isinstance(state, bytes) else names.get(int(state), "").lower()

    return {int(row["clip"]): (name_of(row["state"]), text(row["reason"])) for row in read(rows)}

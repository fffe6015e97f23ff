"""Reads job.h5: what was asked for, how it was run, and what became of each clip."""
import json

import h5py
import numpy as np

from .hdf5 import Damaged, attributes, opened, or_fail, table, text


class Index:
    """The content of a job.h5, read at once. `clips`: their numbers. `listed`: those whose files,
    if they are there, are this job's and complete."""

    def __init__(self, path):
        with opened(path) as file:
            self.attributes = attributes(file)
            if self.attributes.get("program") != "reelmesh":
                raise Damaged("not the index of a job of reelmesh: it has no attribute program = "
                              "reelmesh")
            try:
                linked = {int(name) for name in file["clips"]}
                self.requests = [json.loads(text(line)) for line in file["requests"][()]] \
                    if "requests" in file else []
                self.provenance = attributes(file["provenance"]) if "provenance" in file else {}
                self.hosts = (file["provenance/hosts"][()] if "provenance/hosts" in file else None)
                self.states = _states(table(file, "states", ("clip", "state", "reason")))
                self.clips = sorted(linked | set(self.states))
                # A job that has ended links the clips that are complete, an unfinished one all.
                self.listed = {number for number in linked if self.status == "unfinished" or
                               self.states.get(number, ("complete",))[0] == "complete"}
            except (KeyError, OSError, RuntimeError, ValueError) as error:
                raise Damaged(f"not the index of a job of reelmesh: {error}") from error
        try:
            self.plan = json.loads(self.attributes.get("plan_json") or "{}")
        except ValueError as error:
            raise Damaged(f"its attribute plan_json is not JSON: {error}") from error

    @classmethod
    def of(cls, folder):
        """That of an output folder; None if it has none. Ends the tool if it is damaged."""
        path = folder / "job.h5"
        if not path.exists():
            return None
        with or_fail(path):
            return cls(path)

    @property
    def status(self):
        """'unfinished' (running or killed), 'complete', 'stopped' or 'failed'."""
        return self.attributes.get("status", "")


def _states(rows):
    """clip → (state, reason)."""
    if rows is None:
        return {}
    names = {number: name.lower()
             for name, number in (h5py.check_enum_dtype(rows.dtype["state"]) or {}).items()}

    def name_of(state):
        return text(state) if isinstance(state, (bytes, np.bytes_)) else names.get(int(state), "")

    return {int(row["clip"]): (name_of(row["state"]), text(bytes(row["reason"])))
            for row in rows[()]}

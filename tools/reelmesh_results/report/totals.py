"""Adds up the spans of a trace: by rank, lane and name; steps one by one."""
import dataclasses

import numpy as np

from ..by_rank import joined
from ..hdf5 import Damaged
from ..span_names import names
from . import blocks, nesting

COLUMNS = ("calls", "ns", "self_ns", "childless", "bytes", "top_bytes", "flops", "memory_bytes")
STEP = names.denoise_step
MAX_SUM = 1 << 62


@dataclasses.dataclass
class Extent:
    """Of all spans: the first start, the last end, and how many there are by their duration."""
    first: int = 0
    last: int = 0
    durations: np.ndarray = None  # [i]: spans with 2^((i - 1) / 4) <= duration + 1 < 2^(i / 4)

    @property
    def length(self):
        return max(1, self.last - self.first)

    def longest(self, limit):
        """A duration that at most `limit` spans reach, the smallest that `durations` tells; 0 if
        there are no more spans than that."""
        at_least = np.cumsum(self.durations[::-1])[::-1]
        if at_least[0] <= limit:
            return 0
        return int(np.ceil(2 ** (int(np.argmax(at_least <= limit)) / 4 - 0.25))) - 1


def extent(trace):
    found = Extent(durations=np.zeros(260, np.int64))
    firsts, lasts = [], []
    for block in trace.times():
        start, duration = block["start_ns"], block["duration_ns"]
        if duration.min() < 0:
            raise Damaged("/spans has negative durations, expected a table of reelmesh")
        firsts.append(int(start.min()))
        lasts.append(int((start + duration).max()))
        scale = np.log2(duration.astype(np.float64) + 1) * 4
        found.durations += np.bincount(np.floor(scale).astype(int) + 1, minlength=260)
    if firsts:
        found.first, found.last = min(firsts), max(lasts)
    return found


class Kinds:
    """Numbers for pairs of lane and name, in the order of appearance."""

    def __init__(self):
        self.pairs = []  # number → (lane, name), as numbers of the trace
        self._numbers = {}

    def numbers(self, lane, name):
        codes = lane.astype(np.int64) << 16 | name
        seen = np.bincount(codes)
        table = np.zeros(len(seen), np.int16)
        for code in np.flatnonzero(seen).tolist():
            if code not in self._numbers:
                self._numbers[code] = len(self.pairs)
                self.pairs.append((code >> 16, code & 0xFFFF))
            table[code] = self._numbers[code]
        return table[codes]


class Totals:
    """Sums over spans. `sums[column]`: [rank, kind]; `min_ns` and `max_ns`: of a call, [kind];
    `steps`: arrays by column, a row for each denoise_step of each rank."""

    def __init__(self, ranks):
        self.ranks, self.kinds = ranks, Kinds()
        self.sums = {column: np.zeros((ranks, 0), np.int64) for column in COLUMNS}
        self.min_ns = np.empty(0, np.int64)
        self.max_ns = np.empty(0, np.int64)
        self._steps = []

    def add(self, block, kind, own, parent):
        """block: spans of one rank; own: self times; parent: as nesting.parents()."""
        self._grow(len(self.kinds.pairs))
        rank, count = int(block["rank"][0]), len(self.kinds.pairs)
        if rank >= self.ranks:
            raise Damaged(f"/spans has rank {rank}, /ranks has {self.ranks} rows")
        childless = np.ones(len(kind))
        childless[parent[parent >= 0]] = 0
        weights = {"calls": None, "ns": block["duration_ns"], "self_ns": own,
                   "childless": childless, "bytes": block["bytes"],
                   "top_bytes": np.where(parent < 0, block["bytes"], 0), "flops": block["flops"],
                   "memory_bytes": block["memory_bytes"]}
        for column, values in weights.items():
            added = np.bincount(kind, values, count)
            if (np.abs(self.sums[column][rank] + added) > MAX_SUM).any():
                raise Damaged(f"/spans has more {column} than 64 bits can count")
            self.sums[column][rank] += added.astype(np.int64)
        for number in range(count):
            durations = block["duration_ns"][kind == number]
            if len(durations):
                self.min_ns[number] = min(self.min_ns[number], durations.min())
                self.max_ns[number] = max(self.max_ns[number], durations.max())

    def add_steps(self, block, is_step):
        rows = np.flatnonzero(is_step)
        self._steps.append({name: block[name][rows]
                            for name in ("rank", "clip", "step", "duration_ns", "bytes")})

    @property
    def steps(self):
        if not self._steps:
            return {name: np.empty(0, np.int64)
                    for name in ("rank", "clip", "step", "duration_ns", "bytes")}
        return joined(self._steps)

    def _grow(self, count):
        more = count - len(self.min_ns)
        if more > 0:
            self.sums = {column: np.pad(values, ((0, 0), (0, more)))
                         for column, values in self.sums.items()}
            self.min_ns = np.pad(self.min_ns, (0, more), constant_values=np.iinfo(np.int64).max)
            self.max_ns = np.pad(self.max_ns, (0, more))


def of(trace, rows=None):
    """The sums of a trace. rows: a timeline.Rows that takes the spans too, or None."""
    totals = Totals(len(trace.ranks))
    for block in blocks.closed(trace):
        end = block["start_ns"] + block["duration_ns"]
        parent = nesting.parents(block["start_ns"], end)
        own = nesting.self_times(block["start_ns"], end, parent)
        kind = totals.kinds.numbers(block["lane"], block["name"])
        totals.add(block, kind, own, parent)
        if STEP in trace.names.texts:
            totals.add_steps(block, block["name"] == trace.names.texts.index(STEP))
        if rows is not None:
            rows.add(block, kind, nesting.lane_depths(block["lane"], parent))
    return totals

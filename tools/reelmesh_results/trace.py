"""Reads trace.h5: spans in blocks, so that tables larger than memory can be read."""
import numpy as np

from .errors import fail
from .hdf5 import Damaged, attributes, meanings, opened, read, row_as_dict, table, text
from .outputs import folder_of, is_one_file

BLOCK = 1 << 19  # rows of a table that are in memory at a time
MAX_NS = 15 * 10 ** 15  # of times, half a year: sums and products of them fit 64 bits
SPANS = ("rank", "lane", "name", "clip", "step", "layer", "start_ns", "duration_ns", "bytes",
         "flops")
RANKS = ("rank", "host", "role", "device", "threads", "peak_memory_bytes",
         "peak_device_memory_bytes")
MESSAGES = ("rank", "peer", "direction", "start_ns", "duration_ns", "bytes", "channel", "number")
MEMORY = ("rank", "place", "purpose", "peak_bytes", "bytes_at_peak")
COUNTERS = ("rank", "counter", "time_ns", "value", "max")


class Names:
    """Gives each name of a column a number, in the order of appearance. meanings: number → name if
    the column has numbers; {}: it has texts of fixed length, as in files of format 1."""

    def __init__(self, meanings):
        self.texts = []
        self._meanings = meanings
        self._known = {}  # hash → number
        self._hashes = np.empty(0, np.uint64)  # sorted
        self._numbers = np.empty(0, np.int16)

    def numbers(self, column):
        """[rows] of the column → [rows] of int16, indices of `texts`."""
        hashes = _hashes(column) if column.dtype.kind == "S" else column.astype(np.uint64)
        at = np.searchsorted(self._hashes, hashes)
        at[at == len(self._hashes)] = 0
        if not len(self._hashes) or (self._hashes[at] != hashes).any():
            new, first = np.unique(hashes, return_index=True)
            for value, row in sorted(zip(new.tolist(), first.tolist()), key=lambda pair: pair[1]):
                if value not in self._known:
                    self._known[value] = len(self.texts)
                    self.texts.append(self._name(column[row]))
            if len(self.texts) > np.iinfo(np.int16).max:
                raise Damaged("/spans has more than 32767 names, expected a table of reelmesh")
            self._hashes = np.array(sorted(self._known), np.uint64)
            self._numbers = np.array([self._known[int(h)] for h in self._hashes], np.int16)
            at = np.searchsorted(self._hashes, hashes)
        return self._numbers[at]

    def _name(self, value):
        if isinstance(value, bytes):
            return text(value)
        if int(value) not in self._meanings:
            raise Damaged(f"/spans has the number {value} of a name, of which it has "
                          f"{len(self._meanings)}")
        return self._meanings[int(value)]


def _hashes(column):
    """A 64-bit hash of each string; much faster than comparing strings."""
    width = -(-column.dtype.itemsize // 8) * 8
    padded = np.ascontiguousarray(column.astype(f"S{width}"))
    words = padded.view(np.uint64).reshape(len(column), -1)
    mixed = np.full(len(column), 0x9E3779B97F4A7C15, np.uint64)
    for i in range(words.shape[1]):
        mixed = (mixed ^ words[:, i]) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return mixed


class Trace:
    """An open trace.h5. `lanes` and `names` are the texts of the numbers in the blocks of spans."""

    def __init__(self, path):
        self.file = opened(path)
        try:
            self.attributes = attributes(self.file)
            self._spans = table(self.file, "spans", SPANS)
            ranks = table(self.file, "ranks", RANKS)
            if self._spans is None or ranks is None:
                raise Damaged("has no /spans or /ranks, expected a trace of reelmesh")
            self._messages = table(self.file, "messages", MESSAGES)
            self._counters = table(self.file, "counters", COUNTERS)
            memory = table(self.file, "memory", MEMORY)
            self.memory = None if memory is None else _named(memory, ("place", "purpose"))
            self.ranks = read(ranks)
        except BaseException:
            self.file.close()
            raise
        self.lanes, self.names = (Names(meanings(self._spans, name)) for name in ("lane", "name"))
        self.count = len(self._spans)

    @property
    def complete(self):
        """False: the job is running or was killed; the trace has what was written until then."""
        return bool(self.attributes.get("complete", True))

    def spans(self, begin=0, end=None):
        """Blocks of rows: a dict of arrays by column; lane and name are numbers (see `lanes.texts`,
        `names.texts`), memory_bytes is 0 in files that do not have it. begin, end: only these
        rows."""
        for rows in _blocks(self._spans, begin, end):
            block = {name: rows[name] for name in SPANS if name not in ("lane", "name")}
            block["lane"] = self.lanes.numbers(rows["lane"])
            block["name"] = self.names.numbers(rows["name"])
            block["memory_bytes"] = (rows["memory_bytes"] if "memory_bytes" in rows.dtype.names
                                     else np.zeros(len(rows), np.int64))
            yield block

    def times(self):
        """Blocks of rows of /spans with only start_ns and duration_ns."""
        yield from _blocks(self._spans, columns=("start_ns", "duration_ns"))

    def rank_rows(self):
        """The rows of /ranks as dicts, texts as str."""
        return [row_as_dict(row) for row in self.ranks]

    def messages(self, begin=0, end=None):
        """Blocks of rows of /messages; nothing if the file has none. begin, end: only these
        rows."""
        yield from _blocks(self._messages, begin, end)

    def counters(self, begin=0, end=None):
        yield from _blocks(self._counters, begin, end)

    def counter_names(self):
        """Number → name of a counter, such as 1 → 'HOST_WEIGHTS'."""
        return {} if self._counters is None else meanings(self._counters, "counter")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


def _named(rows, columns):
    """All rows of a table, with the names instead of numbers of these columns."""
    values = read(rows)
    kinds = [(name, "O" if name in columns else values.dtype[name]) for name in values.dtype.names]
    made = np.empty(len(values), kinds)
    for name in values.dtype.names:
        if name not in columns:
            made[name] = values[name]
            continue
        known = meanings(rows, name)
        made[name] = [text(value) if isinstance(value, bytes) else known.get(int(value), "")
                      for value in values[name]]
    return made


def _blocks(rows, begin=0, end=None, columns=()):
    """Blocks of rows of a table, or nothing if it is None. columns: only these; (): all."""
    if rows is not None:
        end = len(rows) if end is None else end
        for first in range(begin, end, BLOCK):
            block = read(rows, (slice(first, min(first + BLOCK, end)), *columns))
            for name in ("start_ns", "duration_ns", "time_ns"):
                if name in block.dtype.names and ((block[name] < -MAX_NS)
                                                  | (block[name] > MAX_NS)).any():
                    raise Damaged(f"{rows.name} has a {name} beyond ±{MAX_NS}, expected times "
                                  "within half a year")
            yield block


def find(out):
    """The trace of a job: out is its output folder, its job.h5, or a trace.h5. Ends the tool if
    there is none."""
    if not out.exists():
        fail(66, f"{out}: no such file or folder; expected a job's output folder or its trace.h5")
    if is_one_file(out):
        return out
    path = folder_of(out) / "trace.h5"
    if not path.exists():
        fail(66, f"{path.parent}: has no trace.h5; was the job run with trace.level = off?")
    return path

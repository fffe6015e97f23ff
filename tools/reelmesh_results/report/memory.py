"""Memory of the ranks: peaks by purpose, and what was there when."""
import numpy as np

BINS = 300  # intervals of time of a chart
PLACES = ("host", "device")
PURPOSES = ("weights", "activations", "workspace", "exchange", "queue")


def peaks(trace):
    """A row for each rank, place and purpose with a peak above 0."""
    if trace.memory is None:
        return []
    return [{"rank": int(row["rank"]), "place": row["place"], "purpose": row["purpose"],
             "peak_bytes": int(row["peak_bytes"]), "bytes_at_peak": int(row["bytes_at_peak"])}
            for row in trace.memory if row["peak_bytes"]]


class Series:
    """The counters of a trace over time: `of(rank, counter)` is the largest value in each of BINS
    intervals, None if the trace has no such values."""

    def __init__(self, trace, extent):
        self._largest, self._last = {}, {}
        self._names = trace.counter_names()
        for block in trace.counters():
            at = (block["time_ns"] - extent.first) * BINS // extent.length
            at = np.clip(at, 0, BINS - 1)
            code = block["rank"].astype(np.int64) << 8 | block["counter"]
            for one in np.unique(code).tolist():
                rows = np.flatnonzero(code == one)
                self._add((one >> 8, self._names.get(one & 255, "")), at[rows],
                          block["value"][rows], block["max"][rows])

    def _add(self, key, at, value, largest_value):
        """Rows of one counter, in the order of time. The value of a row holds until the next."""
        largest = self._largest.setdefault(key, np.full(BINS, -1, np.int64))
        np.maximum.at(largest, at, np.maximum(value, largest_value))
        last = self._last.setdefault(key, np.full(BINS, -1, np.int64))
        last[at] = value  # of equal places the last row wins

    def of(self, rank, counter):
        if (rank, counter) not in self._largest:
            return None
        largest, last = self._largest[rank, counter], self._last[rank, counter]
        held = np.maximum.accumulate(np.where(last >= 0, np.arange(BINS), -1))
        carried = np.concatenate([[0], np.where(held >= 0, last[held], 0)[:-1]])
        return np.maximum(largest, carried)

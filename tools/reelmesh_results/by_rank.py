"""The rows of a trace's tables rank by rank, sorted by time, also of a trace that is unfinished."""
import numpy as np


class Rows:
    """Where the rows of one rank are in a table: `ranges` of rows, in which their times may be
    sorted or not."""

    def __init__(self):
        self.ranges, self.sorted, self._last = [], True, None

    def add(self, first, last, times):
        if self.ranges and self.ranges[-1][1] == first:
            self.ranges[-1] = (self.ranges[-1][0], last)
        else:
            self.ranges.append((first, last))
        self.sorted = (self.sorted and (self._last is None or self._last <= times[0])
                       and bool((times[1:] >= times[:-1]).all()))
        self._last = times[-1]


def index(blocks, time):
    """Rank → Rows of a table. blocks: of rows with the columns `rank` and `time`."""
    found, row = {}, 0
    for block in blocks:
        ranks, times = block["rank"], block[time]
        begins = np.flatnonzero(np.diff(ranks, prepend=ranks[:1] - 1)).tolist()
        for begin, end in zip(begins, [*begins[1:], len(ranks)]):
            found.setdefault(int(ranks[begin]), Rows()).add(row + begin, row + end,
                                                            times[begin:end])
        row += len(ranks)
    return found


def ordered(read, rows, keys, keep):
    """Blocks of one rank's rows as dicts of arrays, sorted by the arrays that keys(block) gives, of
    which the last, the time, counts most. All rows are in memory at once only if the file does not
    have them sorted by time. read(begin, end): blocks of rows. keep(block): which are wanted."""
    blocks = (_kept(block, keep) for begin, end in rows.ranges for block in read(begin, end))
    if not rows.sorted:
        blocks = [joined(list(blocks))]
    held = None
    for block in blocks:
        if held is not None:
            block = joined([held, block])
        block = chosen(block, np.lexsort(keys(block)))
        # Rows of the same time may go on in the next block.
        times = keys(block)[-1]
        split = int(np.searchsorted(times, times[-1])) if len(times) else 0
        held = chosen(block, slice(split, None))
        yield chosen(block, slice(split))
    if held is not None:
        yield held


def _kept(block, keep):
    block = _as_dict(block)
    return chosen(block, keep(block))


def _as_dict(block):
    return block if isinstance(block, dict) else {name: block[name] for name in block.dtype.names}


def chosen(block, where):
    """The rows `where` of a block: a slice, a mask, or indices."""
    return {name: column[where] for name, column in block.items()}


def joined(blocks):
    """The rows of all blocks as one block."""
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}

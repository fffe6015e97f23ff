"""The spans of a trace in blocks that can be evaluated one after the other."""
import numpy as np

from ..by_rank import chosen, joined
from ..hdf5 import Damaged


def closed(trace):
    """Blocks (dicts of columns, see Trace.spans) of one rank each, sorted by start, of equal starts
    the outer first. No span reaches from one block into the next."""
    if not trace.complete:
        yield from _sorted(trace)
        return
    rest = None
    for block in trace.spans():
        for part in _of_one_rank(_checked(block)):
            if rest is not None and rest["rank"][0] != part["rank"][0]:
                yield rest
                rest = None
            rest = part if rest is None else joined([rest, part])
            rest = _in_order(rest)
            ends = np.maximum.accumulate(rest["start_ns"] + rest["duration_ns"])
            cuts = np.flatnonzero(ends[:-1] <= rest["start_ns"][1:]) + 1
            if len(cuts):
                yield chosen(rest, slice(cuts[-1]))
                rest = chosen(rest, slice(cuts[-1], None))
    if rest is not None:
        yield rest


def _sorted(trace):
    """An unfinished trace has its parts in the order of writing: a span may come before the one
    that contains it, so that all spans of a rank are needed at once."""
    blocks = [_checked(block) for block in trace.spans()]
    if not blocks:
        return
    whole = joined(blocks)
    blocks.clear()
    order = np.argsort(whole["rank"], kind="stable")
    for name in whole:
        whole[name] = whole[name][order]
    for part in _of_one_rank(whole):
        yield _in_order(part)


def _checked(block):
    if (block["duration_ns"] < 0).any() or (block["rank"] < 0).any():
        raise Damaged("/spans has negative durations or ranks, expected a table of reelmesh")
    return block


def _of_one_rank(block):
    edges = np.flatnonzero(np.diff(block["rank"])) + 1
    for first, last in zip([0, *edges], [*edges, len(block["rank"])]):
        yield chosen(block, slice(first, last))


def _in_order(block):
    start, duration = block["start_ns"], block["duration_ns"]
    later = np.diff(start)
    if ((later > 0) | ((later == 0) & (np.diff(duration) <= 0))).all():
        return block
    return chosen(block, np.lexsort((-duration, start)))

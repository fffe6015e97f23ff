"""Which spans contain which, and how long each ran itself, without the spans within it."""
import numpy as np


def parents(start, end):
    """Index of the innermost span that is open when each span starts, −1: none.

    start, end: [spans] of one rank, sorted by start, of equal starts the outer first. The span
    wanted is the last earlier one with end > start. The first candidate is the span before; each
    that has ended is replaced by its own candidate, as all between those two had ended too.
    """
    found = np.arange(-1, len(start) - 1)
    left = np.arange(len(start))
    while True:
        left = left[found[left] >= 0]
        left = left[end[found[left]] <= start[left]]
        if not len(left):
            return found
        found[left] = found[found[left]]


def self_times(start, end, parent):
    """Time in which each span was the innermost open one. Their sum is the time with any span open,
    also where spans overlap without one containing the other."""
    own = end - start
    at = start.copy()
    child = np.flatnonzero(parent >= 0)
    outer = parent[child]
    while len(child):
        until = np.minimum(end[child], end[outer])
        taken = np.maximum(until - at[child], 0)
        own -= np.bincount(outer, taken, len(own)).astype(np.int64)
        at[child] = np.maximum(at[child], until)
        more = (at[child] < end[child]) & (parent[outer] >= 0)  # it lasts longer than its parent
        child, outer = child[more], parent[outer[more]]
    return own


def lane_depths(lane, parent, limit=7):
    """How many spans of its own lane each span is within, at most `limit`."""
    depth = np.zeros(len(lane), np.int8)
    inner = np.flatnonzero(parent >= 0)
    outer = parent[inner]
    while len(inner):
        depth[inner] += lane[outer] == lane[inner]
        more = parent[outer] >= 0
        inner, outer = inner[more], parent[outer[more]]
    return np.minimum(depth, limit)

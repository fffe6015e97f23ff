"""The timeline of all ranks. Up to MAX_SPANS spans are in it one by one. Of more, the longest are,
and all spans together are bins: intervals of time, each with the share of it that is busy, and the
name that takes most of it.

In the page the numbers are columns of bytes, deflated, in base64; timeline.js reads them.
"""
import base64
import json
import zlib

import numpy as np

from ..by_rank import chosen, joined
from ..span_names import LANES

MAX_SPANS = 1_000_000  # in the page one by one
MAX_BINS = 1 << 21  # of all rows together


class Rows:
    """A row for each rank, lane and depth within the lane."""

    def __init__(self, extent, trace):
        self.first, self.length = extent.first, extent.length
        self.shortest_ns = extent.longest(MAX_SPANS)  # ns of a span that is kept
        self.whole = self.shortest_ns == 0
        fit = MAX_BINS // max(1, len(trace.ranks) * 6)
        self.bins = 512 if self.whole else int(2 ** np.clip(np.floor(np.log2(max(1, fit))), 9, 13))
        self.quantum = max(1, -(-self.length >> 30))  # ns: times in the page are multiples of it
        self._kept, self._cover, self._rank = [], {}, -1
        self.binned = {}  # (rank, lane, depth) → (busy share 0 … 255 [bins], kind [bins])

    def add(self, block, kind, depth):
        """Takes spans of one rank; ranks in ascending order."""
        rank = int(block["rank"][0])
        if rank != self._rank:
            self._finish()
            self._rank = rank
        start = block["start_ns"] - self.first
        self._add_to_bins(start, start + block["duration_ns"], block["lane"], depth, kind)
        keep = np.flatnonzero(block["duration_ns"] >= self.shortest_ns)
        if len(keep):
            self._kept.append({
                "rank": block["rank"][keep], "lane": block["lane"][keep], "depth": depth[keep],
                "kind": np.minimum(kind[keep], 255).astype(np.uint8), "start": start[keep],
                "duration": block["duration_ns"][keep],
                **{name: block[name][keep] for name in ("clip", "step", "layer")},
                **{name: block[name][keep].astype(np.float32) for name in ("bytes", "flops")}})

    def _add_to_bins(self, start, end, lane, depth, kind):
        """Adds to each bin the part of it that the spans cover. What is added is the change from
        the bin before, which _finish() sums up. A span that began and never ended would cover part
        of its first bin and all of the later ones: changes in two bins. The same from its end on
        is taken away."""
        width = self.length / self.bins
        code = (lane.astype(np.int64) * 8 + depth) * 256 + np.minimum(kind, 255)
        for one in np.flatnonzero(np.bincount(code)).tolist():
            rows = np.flatnonzero(code == one)
            cover = self._cover.setdefault(divmod(one, 256), np.zeros(self.bins + 2))
            for sign, times in ((1, start[rows]), (-1, end[rows])):
                at = times / width
                whole = np.minimum(at.astype(np.int64), self.bins)
                part = at - whole
                cover += sign * np.bincount(whole, 1 - part, self.bins + 2)
                cover += sign * np.bincount(whole + 1, part, self.bins + 2)

    def _finish(self):
        by_row = {}
        for (row, kind), cover in self._cover.items():
            by_row.setdefault(row, []).append((kind, np.cumsum(cover)[:self.bins]))
        for row, parts in by_row.items():
            covers = np.stack([cover for _, cover in parts])
            kinds = np.array([kind for kind, _ in parts], np.uint8)
            share = np.clip(covers.sum(0), 0, 1)
            # A bin that is busy at all can be seen.
            self.binned[self._rank, row // 8, row % 8] = (
                np.where(share > 1e-9, np.maximum(1, np.rint(share * 255)), 0).astype(np.uint8),
                kinds[covers.argmax(0)])
        self._cover = {}

    def done(self):
        """The kept spans by row: key (rank, lane, depth) → slice, and their columns."""
        self._finish()
        if not self._kept:
            return {}, {}
        columns = joined(self._kept)
        self._kept = []
        columns = chosen(columns, np.lexsort([columns[name] for name in ("start", "depth", "lane",
                                                                         "rank")]))
        key = (columns["rank"].astype(np.int64) << 16) + columns["lane"] * 8 + columns["depth"]
        edges = [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(key)]
        return {(int(columns["rank"][a]), int(columns["lane"][a]), int(columns["depth"][a])):
                (a, b) for a, b in zip(edges, edges[1:])}, columns


def payload(rows, trace, kinds):
    """What timeline.js draws, as text. kinds: [{"name", "lane", "colour"}] by number."""
    spans, columns = rows.done()
    lanes = trace.lanes.texts

    def place(key):
        lane = lanes[key[1]]
        return key[0], LANES.index(lane) if lane in LANES else len(LANES), lane, key[2]

    keys = sorted(rows.binned, key=place)
    order = np.concatenate([np.arange(*spans[key]) for key in keys if key in spans] or [[]])
    order = order.astype(np.int64)
    parts = []

    def put(values, kind):
        """Column of numbers as bytes: all first bytes, then all second bytes, …, which deflates
        better."""
        raw = np.ascontiguousarray(values, kind)
        parts.append(raw.view(np.uint8).reshape(len(raw), -1).T.tobytes())

    if columns:
        columns = chosen(columns, order)
        times = columns["start"] // rows.quantum
        put(np.diff(times, prepend=0), "<i4")
        put(-(-columns["duration"] // rows.quantum), "<i4")
        put(columns["kind"], "u1")
        for name in ("clip", "step", "layer"):
            put(np.diff(columns[name].astype(np.int64), prepend=0), "<i4")
        put(columns["bytes"], "<f4")
        put(columns["flops"], "<f4")
    if not rows.whole:
        for i in (0, 1):
            put(np.concatenate([rows.binned[key][i] for key in keys]), "u1")
    header = {"quantum_ns": rows.quantum, "length_ns": rows.length, "spans": len(order),
              "bins": 0 if rows.whole else rows.bins, "kinds": kinds,
              "ranks": [{"rank": row["rank"], "host": row["host"]} for row in trace.rank_rows()],
              "rows": [{"rank": key[0], "lane": lanes[key[1]], "depth": key[2],
                        "spans": spans[key][1] - spans[key][0] if key in spans else 0}
                       for key in keys]}
    words = json.dumps(header, separators=(",", ":")).encode()
    raw = len(words).to_bytes(4, "little") + words + b"".join(parts)
    return base64.b64encode(zlib.compress(raw, 6)).decode()


WIDTH, GUTTER, HIGH, GAP = 1000, 44, 7, 5  # of the static picture: units of its coordinates
COLUMNS, MAX_RANKS = 250, 64


def picture(rows, trace, kinds):
    """A static timeline as SVG: for each lane of the first MAX_RANKS ranks the outermost spans, in
    COLUMNS bins."""
    lanes = [lane for lane in LANES if lane in trace.lanes.texts]
    ranks = sorted({key[0] for key in rows.binned})[:MAX_RANKS]
    step = HIGH * len(lanes) + GAP
    paths, texts = {}, []
    for line, rank in enumerate(ranks):
        texts.append(f'<text x="{GUTTER - 8}" y="{line * step + step / 2 + 2:.0f}">{rank}</text>')
        for number, lane in enumerate(lanes):
            found = rows.binned.get((rank, trace.lanes.texts.index(lane), 0))
            if found is not None:
                _draw(paths, *_coarser(*found), line * step + number * HIGH)
    shapes = "".join(f'<path fill="{kinds[kind]["colour"]}" opacity="{level / 4:g}" d="{path}"/>'
                     for (kind, level), path in sorted(paths.items()))
    high = len(ranks) * step
    seconds = rows.length / 1e9
    return (f'<svg class="static" viewBox="0 0 {WIDTH} {high + 18}" role="img" '
            f'aria-label="Timeline of {len(ranks)} ranks over {seconds:.3g} s">'
            f'{shapes}{"".join(texts)}'
            f'<text x="{GUTTER}" y="{high + 12}" class="begin">0 s</text>'
            f'<text x="{WIDTH}" y="{high + 12}">{seconds:.3g} s</text></svg>')


def _coarser(share, kind):
    """Fewer bins: mean share, and the name of the busiest of those that become one."""
    edges = np.linspace(0, len(share), COLUMNS + 1).astype(int)
    busiest = [a + int(share[a:b].argmax()) for a, b in zip(edges, edges[1:])]
    mean = np.add.reduceat(share.astype(float), edges[:-1]) / np.diff(edges)
    return mean / 255, kind[busiest]


def _draw(paths, share, kind, top):
    """Adds rectangles: runs of bins of one name and one of four levels of share."""
    level = np.ceil(share * 4).astype(int)
    edges = [0, *(np.flatnonzero(np.diff(level) | np.diff(kind.astype(int))) + 1).tolist(),
             len(level)]
    scale = (WIDTH - GUTTER) / len(level)
    for a, b in zip(edges, edges[1:]):
        if level[a]:
            key = int(kind[a]), int(level[a])
            paths[key] = paths.get(key, "") + (f"M{GUTTER + a * scale:.0f} {top}h"
                                               f"{(b - a) * scale:.0f}v{HIGH - 1}h"
                                               f"-{(b - a) * scale:.0f}z")

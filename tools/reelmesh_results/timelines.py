"""A picture of the timelines of jobs, one below the other on one axis of time."""
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .report.colours import of_name
from .span_names import SPANS, up_to

MOST_RANKS = 64  # of a job: more would not be seen
WIDE, ROW, ABOVE = 12.0, 0.16, 1.0  # inches: of the picture, of a rank, of what is beside the ranks


class Timeline:
    """The stages in a trace. `bars`: (rank, name) → [span, 2] of starts and durations in seconds
    since the start of the first one. `end`: of the last one."""

    def __init__(self, title, trace):
        self.title, self.ranks = title, len(trace.ranks)
        stages, parts = up_to("stages"), {}
        for block in trace.spans():
            times = np.stack([block["start_ns"], block["duration_ns"]], 1) / 1e9
            for rank, number in np.unique(np.stack([block["rank"], block["name"]], 1), axis=0):
                name = trace.names.texts[number]
                if rank < MOST_RANKS and name in stages:
                    here = (block["rank"] == rank) & (block["name"] == number)
                    parts.setdefault((int(rank), name), []).append(times[here])
        self.bars = {key: np.concatenate(found) for key, found in parts.items()}
        start = min((times[:, 0].min() for times in self.bars.values()), default=0)
        for times in self.bars.values():
            times[:, 0] -= start
        self.end = max((times.sum(1).max() for times in self.bars.values()), default=0)

    @property
    def rows(self):
        return min(self.ranks, MOST_RANKS)


def draw(timelines, path):
    """As PNG."""
    heights = [max(0.8, ROW * one.rows) for one in timelines]
    figure = Figure(figsize=(WIDE, sum(heights) + ABOVE * len(timelines)), layout="constrained")
    axes = figure.subplots(len(timelines), 1, sharex=True, squeeze=False,
                           gridspec_kw={"height_ratios": heights})[:, 0]
    for one, ax in zip(timelines, axes):
        for (rank, name), times in one.bars.items():
            ax.broken_barh(times, (rank - 0.45, 0.9), color=of_name(name), linewidth=0)
        left_out = f", {one.rows} of {one.ranks} ranks" if one.rows < one.ranks else ""
        ax.set_title(f"{one.title}: {one.end:.4g} s{left_out}", loc="left", fontsize=10)
        ax.set_ylim(one.rows - 0.5, -0.5)
        ax.set_ylabel("rank")
        ax.set_yticks(range(0, one.rows, max(1, one.rows // 8)))
        ax.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("seconds")
    axes[-1].set_xlim(0, max(one.end for one in timelines) or 1)
    there = {name for one in timelines for _, name in one.bars}
    names = [name for name in SPANS if name in there]
    axes[-1].legend(handles=[Patch(color=of_name(name), label=name) for name in names],
                    loc="upper center", bbox_to_anchor=(0.5, -0.5 / heights[-1]),
                    ncols=max(1, min(8, len(names))), frameon=False, fontsize=9)
    figure.savefig(path, dpi=110, format="png")

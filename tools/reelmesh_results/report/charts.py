"""Charts as SVG for the page. matplotlib draws them with stand-ins for the page's colours, which
CSS variables then replace, so that they fit the light and the dark page."""
import html
import io
import re

import matplotlib
import numpy as np

from . import colours, memory
from .units import plural

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # noqa: E402

INK, FAINT, LINE, ACCENT, ALARM = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f"
VARIABLES = {INK: "var(--ink)", FAINT: "var(--faint)", LINE: "var(--line)",
             ACCENT: "var(--accent)", ALARM: "var(--alarm)"}
STYLE = {"svg.fonttype": "none", "font.size": 10, "axes.edgecolor": LINE, "axes.labelcolor": FAINT,
         "xtick.color": LINE, "ytick.color": LINE, "xtick.labelcolor": FAINT,
         "ytick.labelcolor": FAINT, "axes.spines.top": False, "axes.spines.right": False,
         "axes.grid": True, "axes.grid.axis": "y", "grid.color": LINE, "grid.linewidth": 0.6,
         "axes.axisbelow": True, "text.color": INK, "legend.frameon": False,
         "axes.linewidth": 0.8, "legend.fontsize": 9, "savefig.transparent": True}
SIZE = (5.6, 2.7)  # inches of 72 units
ROOM = 14  # points beside the numbers of the y axis, which narrow screens show larger (page.css)
BINS = 1200  # points of a line by step at most


def _svg(figure, title, name):
    """name: tells the identifiers of this picture from those of others in the page."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None,
                                                     "Type": None})
    pyplot.close(figure)
    found = file.getvalue()
    found = found[found.index("<svg"):]
    opening = re.search(r'viewBox="[^"]*"', found).group()
    found = re.sub(r"<svg[^>]*>", f'<svg class="chart" {opening} role="img" aria-label='
                   f'"{html.escape(title)}">', found, count=1)
    for colour, variable in VARIABLES.items():
        found = found.replace(colour, variable)
    found = re.sub(r'(\bid="|href="#|url\(#)([\w-]+)', rf"\g<1>{name}-\2", found)
    return re.sub(r"font: [^;\"]*", "font-size: 10px", found)


def steps(samples, size, name):
    """A histogram of seconds per step with its median and quantiles."""
    unit, factor = next(((unit, factor) for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6))
                         if np.median(samples) * factor >= 1), ("ns", 1e9))
    values = samples * factor
    low, high = np.quantile(values, (0, 0.995))
    middle = np.median(values)
    if high - low < 0.02 * middle:  # equal but for noise: not stretched over the whole width
        low, high = 0.95 * middle, 1.05 * middle
    with matplotlib.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=SIZE, layout="constrained")
        bins = int(np.clip(np.sqrt(len(values)) * 1.5, 8, 60))
        counts, edges = np.histogram(np.clip(values, low, high), bins, (low, high))
        axes.bar(edges[:-1], counts, np.diff(edges) * 0.94, align="edge", color=ACCENT)
        for quantile, label in ((0.05, "5 %"), (0.5, "median"), (0.95, "95 %")):
            at = np.quantile(values, quantile)
            axes.axvline(at, color=INK, linewidth=1.2 if quantile == 0.5 else 0.8,
                         linestyle="-" if quantile == 0.5 else (0, (3, 3)))
            if quantile == 0.5 or abs(at - middle) > 0.12 * (high - low):  # room for both
                axes.annotate(label, (at, 1), xycoords=("data", "axes fraction"), ha="center",
                              xytext=(0, 4), textcoords="offset points", fontsize=9)
        axes.set_xlabel(f"{unit} a step" + ("; the last bar has all above"
                                            if values.max() > high else ""))
        axes.set_ylabel("steps", labelpad=ROOM)
        axes.yaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
        return _svg(figure, f"Histogram of {len(values)} steps {size}", name)


def by_step(values, mean, label, name, *, limit=None, wide=False):
    """Values by step as a faint line, and a running mean (or None). label: of the values. limit: a
    dashed line, if it is not far above them. Of many steps the faint line becomes the range of
    values in each of BINS intervals. Returns the picture; None if no value is finite."""
    finite = np.isfinite(values)
    if not finite.any():
        return None
    top = float(np.quantile(values[finite], 0.995))  # single outliers do not flatten the rest
    bottom = min(0.0, float(values[finite].min()))
    top = max(top, np.nanmax(mean) if mean is not None and np.isfinite(mean).any() else top)
    has_limit = limit is not None and limit < 3 * top
    top = 1.06 * max(top, limit if has_limit else top) or 1.0
    with matplotlib.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            figsize=(1.3 * SIZE[0], 1.1 * SIZE[1]) if wide else SIZE, layout="constrained")
        if mean is None:
            _line(axes, values, color=ACCENT, linewidth=1.6)
        else:
            if len(values) > BINS:
                edges = np.linspace(0, len(values), BINS + 1).astype(int)
                parts = [part[np.isfinite(part)] for part in np.split(values, edges[1:-1])]
                axes.fill_between(edges[:-1], *([function(part) if len(part) else np.nan
                                                 for part in parts] for function in (min, max)),
                                  color=ACCENT, alpha=0.25, linewidth=0)
            else:
                _line(axes, values, color=ACCENT, linewidth=0.8, alpha=0.4)
            _line(axes, mean, color=ACCENT, linewidth=1.8)
        if has_limit:
            axes.axhline(limit, color=INK, linewidth=1, linestyle="dashed")
        axes.set_xlim(0, max(1, len(values) - 1))
        axes.set_ylim(bottom, top)
        axes.set_xlabel("step")
        axes.set_ylabel(label, labelpad=ROOM)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(7, integer=True))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        above = int((values[finite] > top).sum())
        if above:
            axes.annotate(f"{plural(above, 'step')} above", (1, 1), xycoords="axes fraction",
                          ha="right", va="bottom", fontsize=9, color=FAINT)
        return _svg(figure, f"{label} by step, {plural(len(values), 'step')}", name)


def curves(lines, label, title, name, *, from_zero=True, last=None):
    """Lines over steps, one for each (steps, values, colour, width, whether points are marked).
    Returns the picture; None if no value is finite. last: the last step that the axis shows."""
    shown = [(steps[kept], values[kept], *style) for steps, values, *style in lines
             for kept in [np.isfinite(values)] if kept.any()]
    if not shown:
        return None
    with matplotlib.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=SIZE, layout="constrained")
        for steps, values, colour, width, marked in shown:
            if len(steps) > BINS:
                places = np.linspace(0, len(steps) - 1, BINS).astype(int)
                steps, values = steps[places], values[places]
            marked = marked and len(steps) <= 40 or len(steps) == 1
            axes.plot(steps, values, color=colour, linewidth=width, markersize=3.5,
                      marker="o" if marked else "", clip_on=False)
        low, high = (bound(values.min() if bound is min else values.max()
                           for _, values, *_ in shown) for bound in (min, max))
        low = min(0.0, low) if from_zero else low
        room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
        axes.set_ylim(low if from_zero else low - room, high + room)
        axes.set_xlim(0, max(1, last if last is not None
                             else max(steps[-1] for steps, *_ in shown)))
        axes.set_xlabel("step")
        axes.set_ylabel(label, labelpad=ROOM)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(7, integer=True))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        return _svg(figure, title, name)


def _line(axes, values, **style):
    """A line through the finite values; of a single one, a dot."""
    steps = np.arange(len(values))
    if len(values) > BINS:  # the picture does not have so many points
        steps = np.linspace(0, len(values) - 1, BINS).astype(int)
    axes.plot(steps, np.where(np.isfinite(values), values, np.nan)[steps],
              marker="o" if len(steps) == 1 else "", markersize=4, clip_on=len(steps) > 1,
              **style)


def memory_over_time(measured, row, place, name):
    """Memory of a rank by purpose, stacked, with limit, prediction and peak as lines. Returns the
    picture and what it shows: (name, colour, kind of line, '' for an area); None if the trace has
    no such counters."""
    series, extent = measured.series, measured.extent
    parts = [(purpose, series.of(row["rank"], f"{place.upper()}_{purpose.upper()}"))
             for purpose in memory.PURPOSES]
    parts = [(purpose, values) for purpose, values in parts
             if values is not None and values.any()]
    if not parts:
        return None
    stack = np.cumsum([values for _, values in parts], axis=0)
    lines = [("prediction of the plan", row.get("predicted_memory_bytes"), INK, "dashed")]
    if place == "host":
        lines.append(("peak of the process", row.get("peak_memory_bytes"), FAINT, "dotted"))
    most = max(stack.max(), *(value or 0 for _, value, _, _ in lines))
    if (row.get("memory_limit_bytes") or 0) < 3 * most:  # else the rest would be at the bottom
        lines.append(("limit", row.get("memory_limit_bytes"), ALARM, "solid"))
    unit, scale = ("GiB", 2**30) if most > 2**32 else ("MiB", 2**20)
    times = np.arange(memory.BINS + 1) * extent.length / 1e9 / memory.BINS
    with matplotlib.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(1.3 * SIZE[0], SIZE[1]), layout="constrained")
        below = np.zeros(memory.BINS)
        for (purpose, _), top in zip(parts, stack):
            axes.stairs(top / scale, times, baseline=below, fill=True,
                        color=colours.PURPOSES[purpose], linewidth=0)
            below = top / scale
        lines = [line for line in lines if line[1]]
        for _, value, colour, style in lines:
            axes.axhline(value / scale, color=colour, linestyle=style, linewidth=1.3)
        axes.set_xlim(0, times[-1])
        axes.set_ylim(0)
        axes.set_xlabel("seconds since the start of the trace")
        axes.set_ylabel(unit, labelpad=ROOM)
        picture = _svg(figure, f"Memory of rank {row['rank']} on the {place} over time", name)
    return picture, [(purpose, colours.PURPOSES[purpose], "") for purpose, _ in parts] + [
        (label, VARIABLES[colour], style) for label, _, colour, style in lines]

"""The numbers as text for a terminal of 100 columns."""
import textwrap

from ..errors import printable
from ..span_names import LANES, lanes
from . import memory
from .training_words import in_words
from .units import (SIMULATED, not_complete, number, percent, plural, provenance_in_words, rate,
                    seconds, signed_percent, size)

WIDE = 100
MAX_CLIPS, MAX_LINES = 40, 64  # rows of a table; beyond, a line says how many are left out
HEIGHTS = "▁▂▃▄▅▆▇█"
FULL, PARTS = "█", " ▏▎▍▌▋▊▉"
FILL = {lanes.compute: "█", lanes.exchange: "▓", lanes.file: "▒", lanes.waiting: "░",
        "other": "·"}


def of(numbers):
    trace = numbers["trace"]
    training = numbers["training"]
    parts = [_head(numbers), _training(training) if training else
             "" if numbers["job"]["status"] == "simulated" else _clips(numbers["clips"])]
    if trace and trace["spans"]:
        parts += [_ranks(trace), _names(trace), _steps(trace), _operations(trace), _memory(trace),
                  _sent(trace)]
    elif trace:
        parts.append("The trace has no spans yet.")
    else:
        parts.append("There is no trace: nothing about time and memory.")
    if numbers["plan"]:
        parts.append(_part("Plan", _wrapped(numbers["plan"])))
    parts.append(_provenance(numbers["provenance"]))
    return printable("\n\n".join(part for part in parts if part))


def _part(title, content):
    return f"{title}\n{'─' * len(title)}\n{content}"


def _wrapped(text):
    return "\n".join(textwrap.fill(line, WIDE, initial_indent="  ", subsequent_indent="      ",
                                   break_on_hyphens=False) for line in text.strip().splitlines())


def _table(columns, rows, limit=MAX_LINES):
    """columns: headings; those that begin with '<' are aligned to the left."""
    left = [name.startswith("<") for name in columns]
    lines = [[name.lstrip("<") for name in columns], *rows[:limit]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    found = ["  ".join(cell.ljust(width) if to_left else cell.rjust(width)
                       for cell, width, to_left in zip(line, widths, left)).rstrip()
             for line in lines]
    if len(rows) > limit:
        found.append(f"… and {number(len(rows) - limit)} more")
    return textwrap.indent("\n".join(found), "  ", lambda line: True)


def _short(text, limit):
    text = " ".join(str(text).split())
    return text if len(text) <= limit else text[:limit - 1] + "…"


def bar(share, wide):
    """A bar of eighths of a character."""
    eighths = round(max(0, min(1, share)) * wide * 8)
    return (FULL * (eighths // 8) + PARTS[eighths % 8].strip()).ljust(wide)


def stacked(shares, wide):
    """shares: (character, share); the characters of all together fill the width at most."""
    found, done = "", 0.0
    for character, share in shares:
        done += share
        found += character * (round(min(1, done) * wide) - len(found))
    return found.ljust(wide)


def _head(numbers):
    job, clips = numbers["job"], numbers["clips"]
    machine = f"{plural(job['ranks'], 'rank')} on {plural(len(job['hosts']), 'host')}"
    made = [] if numbers["training"] else [
        f"  clips   {number(clips['total'])} would be made" if job["status"] == "simulated" else
        f"  clips   {number(clips['complete'])} of {number(clips['total'])} complete"
        + "".join(f", {one}" for one in not_complete(clips)),
        f"  size    {', '.join(job['sizes'][:4]) or '–'} (frames × height × width)"]
    lines = [f"{job['folder']}: {job['status']}", "", *made,
             f"  time    {seconds(job['wall_seconds'])}, started {job['start']}",
             *_prediction(job["prediction"]),
             f"  ranks   {machine}" + (f", {', '.join(job['devices'])}" if job["devices"] else ""),
             f"  model   {job['model']}", f"  reelmesh {job['version']}"]
    if job["status"] == "simulated":
        lines.append(f"  {SIMULATED}")
    lines += [f"  Memory was short: {line}." for line in job["planned_again"]]
    if numbers["trace"] and not numbers["trace"]["complete"]:
        lines.append("  The trace has what was written before the job ended.")
    return "\n".join(lines) + _now(job["now"])


def _prediction(found):
    return [] if found is None else [
        f"  plan    predicted {seconds(found['predicted_seconds'])}, measured "
        f"{seconds(found['measured_seconds'])}, error {signed_percent(found['error_percent'])}"]


def _now(now):
    if not now:
        return ""
    rows = [[str(rank.get(name, "–")) for name in ("rank", "host", "stage", "clip", "step")]
            for rank in now.get("ranks", []) if isinstance(rank, dict)]
    return "\n\n" + _part(f"Ranks {seconds(now['seconds_ago'])} ago", _table(
        ["rank", "<host", "<stage", "clip", "step"], rows))


def _clips(clips):
    rows = [[str(clip["clip"]), clip["state"], str(clip.get("seed", "–")),
             "×".join(str(clip[name]) for name in ("frames", "height", "width"))
             if "width" in clip else "–",
             _short(clip["reason"] or clip.get("prompt", ""), WIDE - 42)]
            for clip in sorted(clips["items"], key=lambda clip: clip["state"] == "complete")]
    return _part("Clips", _table(["clip", "<state", "seed", "<size", "<prompt, or reason"], rows,
                                 MAX_CLIPS)) if rows else "The job has no clips."


def _training(found):
    lines = [textwrap.fill(f"{name:16} {value}", WIDE - 2, subsequent_indent=" " * 17,
                           break_on_hyphens=False) for name, value in in_words(found)]
    curve = found["loss"]["curve"]
    if len(curve) > 1:
        lines.append(f"{'loss over time':16} {_heights(curve)}")
    return _part("Training", textwrap.indent("\n".join(lines), "  "))


def _heights(values):
    """A character for each value, as high as it is; a space for None."""
    most = max((value for value in values if value is not None), default=0)
    return "".join(" " if value is None else HEIGHTS[
        max(0, round(value / most * len(HEIGHTS)) - 1) if most > 0 else 0] for value in values)


def _ranks(trace):
    names = (*LANES, "other")
    rows = []
    for rank in trace["ranks"]:
        shares = [rank["seconds"].get(name, 0) / trace["seconds"] for name in names]
        rows.append([str(rank["rank"]), _short(rank["host"], 12), stacked(
            [(FILL[name], share) for name, share in zip(names, shares)], 36),
            *map(percent, shares)])
    legend = "  ".join(f"{FILL[name]} {name}" for name in names)
    return _part("Ranks", f"  {legend}\n" + _table(["rank", "<host", "<", *names], rows))


def _names(trace):
    rows = [[one["name"], one["lane"], number(one["calls"]), seconds(one["seconds"]),
             percent(one["share"]), bar(one["share"], 10), seconds(one["call_seconds"]["mean"]),
             seconds(one["rank_seconds"]["min"]), seconds(one["rank_seconds"]["max"])]
            for one in trace["names"]]
    return _part("Stages", _table(["<name", "<lane", "calls", "total", "own", "<share", "mean call",
                                   "min of rank", "max"], rows))


def _steps(trace):
    rows = [[one["size"] or "–", one["replica"], number(one["count"]),
             *(seconds(one[key]) for key in ("mean", "min", "p05", "median", "p95", "max"))]
            for one in trace["steps"]]
    return _part("Steps", _table(["<size", "<replica", "steps", "mean", "min", "5 %", "median",
                                  "95 %", "max"], rows)) if rows else ""


def _operations(trace):
    rows = [[one["name"], number(one["calls"]), percent(one["share"]), bar(one["share"], 10),
             rate(one["flops_per_s"], "FLOP/s"), percent(one["flops_share_of_peak"]),
             rate(one["memory_bytes_per_s"], "B/s"), percent(one["memory_bytes_share_of_peak"])]
            for one in trace["names"] if one["innermost"] and (
                one["flops"] or one["memory_bytes"] or one["lane"] == lanes.exchange)]
    return _part("Operations", _table(["<name", "calls", "time", "<", "FLOP/s", "of peak", "memory",
                                       "of peak"], rows)) if trace["level"] == "ops" else ""


def _memory(trace):
    by_rank = {}
    for one in trace["memory"]:
        by_rank.setdefault((one["rank"], one["place"]), {})[one["purpose"]] = one["peak_bytes"]
    ranks = {rank["rank"]: rank for rank in trace["ranks"]}
    rows = [[str(rank), place, *(size(found.get(name)) for name in memory.PURPOSES),
             size(ranks[rank]["peak_device_memory_bytes" if place == "device" else
                              "peak_memory_bytes"]),
             size(ranks[rank].get("predicted_memory_bytes") or None),
             size(ranks[rank].get("memory_limit_bytes") or None)]
            for (rank, place), found in sorted(by_rank.items()) if rank in ranks]
    return _part("Memory, peaks", _table(["rank", "<place", *memory.PURPOSES, "all", "plan",
                                          "limit"], rows)) if rows else ""


def _sent(trace):
    steps = {one["rank"]: one for one in trace["step_bytes"]}
    rows = [[str(rank["rank"]), size(rank["bytes_sent"]),
             *([size(one["mean"]), size(one["planned"]),
                f"{one['ratio']:.3f}" if one["ratio"] is not None else "–"]
               if (one := steps.get(rank["rank"])) else ["–"] * 3)] for rank in trace["ranks"]]
    return _part("Bytes sent", _table(["rank", "in all", "a step", "plan", "measured / plan"],
                                      rows))


def _provenance(found):
    lines = [textwrap.fill(f"{name:16} {value}", WIDE - 2, subsequent_indent=" " * 17,
                           break_on_hyphens=False)
             for name, value in provenance_in_words(found, ", ") if name != "job file"]
    return _part("What was run", textwrap.indent("\n".join(lines), "  ")) if lines else ""

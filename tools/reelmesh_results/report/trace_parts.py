"""The parts of the page that show the trace: timeline, tables, charts."""
import numpy as np

from ..span_names import LANES, lanes
from . import charts, colours, memory, timeline
from .markup import bar, swatch, table, text
from .numbers import step_seconds
from .units import number, percent, plural, rate, seconds, size

MAX_MEMORY_CHARTS = 16  # ranks
MAX_STEP_CHARTS = 4  # sizes of clips


def of(found, job, measured, kinds):
    """Parts of the page: (identifier, title, HTML). found: numbers of the trace; kinds: lane,
    name and colour of the spans."""
    if not found["spans"]:
        return [("timeline", "Timeline", "<p class=empty>The trace has no spans yet.</p>")]
    return [("timeline", "Timeline", _timeline(found, measured, kinds)),
            ("stages", "Stages", _stages(found)), ("ranks", "Ranks", _ranks(found)),
            # Those of a training are timed by its metrics.
            *([] if job.training else [("steps", "Steps", _steps(found, job, measured.sums))]),
            ("operations", "Operations", _operations(found)),
            ("memory", "Memory", _memory(found, measured)),
            ("sent", "Bytes sent", _sent(found, job.training is None))]


def _timeline(found, measured, kinds):
    rows = measured.rows
    legend = "".join(f'<li>{_name(kind["name"])}</li>'
                     for kind in sorted(kinds, key=lambda kind: (
                         LANES.index(kind["lane"]) if kind["lane"] in LANES else len(LANES))))
    about = f'{plural(found["spans"], "span")} at trace.level = {text(found["level"] or "?")}'
    if not rows.whole:
        about += (f'. Those shorter than {seconds(rows.shortest_ns / 1e9)} are drawn as '
                  f'intervals of {seconds(rows.length / rows.bins / 1e9)} in the colour of the '
                  'name with most time in it')
    return ('<div id="drawing"><div class="tools"><button type="button" id="zoom-in" '
            'aria-label="Zoom in">+</button><button type="button" id="zoom-out" '
            'aria-label="Zoom out">−</button><button type="button" id="zoom-all">All</button>'
            '<label class="check"><input type="checkbox" id="levels"> nested spans</label>'
            '<span class="hint">Click it and the wheel zooms · drag to move · n and p go from span '
            "to span</span></div>"
            '<div class="view" id="view"><canvas id="canvas" tabindex="0" role="application" '
            'aria-label="Timeline of all ranks. Plus and minus zoom, arrow keys move, n and p go '
            'to the next and the previous span, 0 shows all." aria-describedby="picked"></canvas>'
            '<div class="tip" id="tip" hidden></div></div>'
            '<p id="picked" class="picked" aria-live="polite"></p></div>'
            f'<noscript>{timeline.picture(rows, measured.trace, kinds)}</noscript>'
            f'<ul class="legend">{legend}</ul><p class="about">{about}.</p>')


def _name(name):
    """The name of spans with its colour."""
    return swatch(colours.of_name(name)) + text(name)


def _stages(found):
    rows = [[_name(one["name"]), text(one["lane"]),
             number(one["calls"]), seconds(one["seconds"]), percent(one["share"]),
             seconds(one["call_seconds"]["mean"]), seconds(one["call_seconds"]["min"]),
             seconds(one["call_seconds"]["max"]), seconds(one["rank_seconds"]["min"]),
             seconds(one["rank_seconds"]["max"])] for one in found["names"]]
    columns = [("name", "text"), ("lane", "text"), ("calls", "number"), ("total", "number"),
               ("own share", "number"), ("mean call", "number"), ("shortest", "number"),
               ("longest", "number"), ("min of a rank", "number"), ("max", "number")]
    return (table("Time by name, all ranks together", columns, rows)
            + '<p class="about">A total contains the spans within; the own share of the ranks’ '
              "time does not, so that own shares add up to the time in any span.</p>")


def _ranks(found):
    names = (*LANES, "other")
    fill = {**colours.LANES, "other": "var(--idle)"}
    lines = []
    for rank in found["ranks"]:
        shares = {name: rank["seconds"].get(name, 0) / found["seconds"] for name in names}
        label = f"rank {rank['rank']}: " + ", ".join(f"{name} {percent(shares[name])}"
                                                     for name in names)
        lines.append(f'<div class="line"><span class="who">{rank["rank"]}</span>'
                     + bar([(shares[name], fill[name]) for name in names], label)
                     + f'<span class="value">{percent(shares[lanes.compute])}</span></div>')
    legend = "".join(f"<li>{swatch(fill[name])}{name}</li>" for name in names)
    columns = [("rank", "number"), ("host", "text"), ("role", "text"), ("device", "text"),
               *((name, "number") for name in names), ("peak memory", "number")]
    rows = [[str(rank["rank"]), text(rank["host"]), text(rank["role"]), text(rank["device"]),
             *(seconds(rank["seconds"].get(name, 0)) for name in names),
             size(peak(rank) or None)] for rank in found["ranks"]]
    level = ("" if found["level"] == "ops" else " Exchanges within a step are spans only at "
             "trace.level = ops; here they are part of compute.")
    return (f'<ul class="legend">{legend}</ul><div class="bars tall" tabindex="0" role="region" '
            f'aria-label="Time of each rank">{"".join(lines)}</div>'
            '<p class="about">Each moment counts for the innermost span. Waiting is for other ranks, '
            'between stages or until the job ends; an exchange contains the wait for its partner. '
            f'Other is time without a span; earlier versions have no spans of waiting.{level}</p>'
            f'<details><summary>As a table</summary>{table("Ranks", columns, rows)}</details>')


def _steps(found, job, sums):
    if not found["steps"]:
        return '<p class="empty">No step was finished in this trace.</p>'
    by_size = {}
    for (of_size, _), samples in step_seconds(job, sums).items():
        by_size.setdefault(of_size, []).append(samples)
    pictures = ""
    for place, (of_size, samples) in enumerate(sorted(
            by_size.items(), key=lambda pair: -sum(map(len, pair[1])))[:MAX_STEP_CHARTS]):
        all_of_them = np.concatenate(samples)
        pictures += (f'<figure><figcaption>{text(of_size or "all clips")}: median '
                     f'{seconds(float(np.median(all_of_them)))}</figcaption>'
                     + charts.steps(all_of_them, of_size, f"steps{place}") + "</figure>")
    columns = [("size", "text"), ("replica", "text"), ("steps", "number"), ("mean", "number"),
               ("min", "number"), ("5 %", "number"), ("median", "number"), ("95 %", "number"),
               ("max", "number")]
    rows = [[text(one["size"] or "–"), text(one["replica"] or "–"), number(one["count"]),
             *(seconds(one[key]) for key in ("mean", "min", "p05", "median", "p95", "max"))]
            for one in found["steps"]]
    return (f'<div class="pictures">{pictures}</div>'
            f'{table("Seconds a step", columns, rows)}')


def _operations(found):
    if found["level"] != "ops":
        return ('<p class="empty">The job was traced at trace.level = '
                f'{text(found["level"] or "?")}. With ops each product, attention, convolution, '
                "norm and exchange is timed, and this part says what share of the machine each "
                "reaches.</p>")
    done = [one for one in found["names"]
            if one["innermost"] and one["lane"] in (lanes.compute, lanes.exchange) and (
                one["flops"] or one["memory_bytes"] or one["lane"] == lanes.exchange)]
    columns = [("operation", "text"), ("calls", "number"), ("share of time", "number"),
               ("", "text"), ("FLOP/s", "number"), ("of peak", "number"), ("memory", "number"),
               ("of peak", "number"), ("sent", "number")]
    largest_value = max((one["share"] for one in done), default=0) or 1
    rows = [[_name(one["name"]), number(one["calls"]),
             percent(one["share"]),
             bar([(one["share"] / largest_value, colours.of_name(one["name"]))],
                 f"{one['name']} {percent(one['share'])}"),
             rate(one["flops_per_s"], "FLOP/s"), percent(one["flops_share_of_peak"]),
             rate(one["memory_bytes_per_s"], "B/s"), percent(one["memory_bytes_share_of_peak"]),
             rate(one["bytes_per_s"], "B/s")] for one in done]
    note = ("" if any(one["flops_share_of_peak"] for one in done) else
            " The trace has no peaks of the machine: give them with --peak-flops and --bandwidth.")
    return (table("Operations on one rank’s device, mean over all calls", columns, rows)
            + '<p class="about">FLOP/s and bytes per second are of one rank while the operation '
              "runs; memory is what it reads and writes at least, each operand once."
              f'{note}</p>')


def peak(rank):
    """Bytes that a rank had at most; 0 of a simulation."""
    return rank["peak_device_memory_bytes"] or rank["peak_memory_bytes"]


def _memory(found, measured):
    peaks = {rank["rank"]: peak(rank) for rank in found["ranks"]}
    largest = sorted(peaks, key=lambda rank: -peaks[rank])[:MAX_MEMORY_CHARTS]
    rows = {rank["rank"]: rank for rank in found["ranks"]}
    pictures = [(rank, "".join(_over_time(measured, rows[rank], place)
                               for place in memory.PLACES)) for rank in largest]
    pictures = [(rank, picture) for rank, picture in pictures if picture]
    choose = "".join(f'<option value="{rank}">rank {rank}'
                     + (f", peak {size(peaks[rank])}" if peaks[rank] else "") + "</option>"
                     for rank, _ in pictures)
    choose = (f'<p class="choose scripted"><label>Memory of <select id="memory-rank">{choose}'
              "</select></label></p>" if len(pictures) > 1 else "")
    shown = "".join(f'<figure data-rank="{rank}"{" hidden" if place else ""}>'
                    f'{picture}</figure>'
                    for place, (rank, picture) in enumerate(pictures))
    return choose + shown + _peaks(found)


def _over_time(measured, row, place):
    found = charts.memory_over_time(measured, row, place, f"memory{row['rank']}{place}")
    if not found:
        return ""
    picture, legend = found
    items = "".join(
        "<li>" + (f'<i class="dash" style="border-top:2px {style} {colour}"></i>' if style else
                  swatch(colour)) + f"{name}</li>" for name, colour, style in legend)
    return (f'<figcaption>Rank {row["rank"]}, {place}</figcaption><ul class="legend">{items}</ul>'
            f"{picture}")


def _peaks(found):
    """Peaks by purpose, against the limit and the plan's prediction."""
    sums = {}
    for one in found["memory"]:
        sums.setdefault(one["rank"], {}).setdefault(one["place"], {})[one["purpose"]] = one
    largest_value = max([size_ for rank in found["ranks"] for size_ in (
        rank["peak_memory_bytes"], rank["peak_device_memory_bytes"],
        rank.get("predicted_memory_bytes", 0))], default=0) or 1
    lines, rows = [], []
    for rank in found["ranks"]:
        places = sums.get(rank["rank"], {})
        place = "device" if places.get("device") else "host"
        purposes = places.get(place, {})
        parts = [(purposes[name]["bytes_at_peak"], name) for name in memory.PURPOSES
                 if name in purposes]
        whole = rank["peak_device_memory_bytes"] if place == "device" else rank["peak_memory_bytes"]
        label = f"rank {rank['rank']}, {place}: {size(whole)}; " + ", ".join(
            f"{name} {size(value)}" for value, name in parts)
        if not whole:  # of a simulation
            whole, parts = rank.get("predicted_memory_bytes") or 0, []
            label = f"rank {rank['rank']}: {size(whole)}, as the plan predicts"
        rest = (max(0, whole - sum(value for value, _ in parts))
                if place == "host" or not parts else 0)
        lines.append(f'<div class="line"><span class="who">{rank["rank"]}</span>' + bar(
            [(value / largest_value, colours.PURPOSES[name]) for value, name in parts]
            + [(rest / largest_value, "var(--idle)")], label,
            (rank.get("predicted_memory_bytes") or 0) / largest_value)
            + f'<span class="value">{size(whole)}</span></div>')
        rows.append([str(rank["rank"]), place, size(whole),
                     *(size(purposes[name]["peak_bytes"]) if name in purposes else "–"
                       for name in memory.PURPOSES),
                     size(rank.get("predicted_memory_bytes") or None),
                     size(rank.get("memory_limit_bytes") or None)])
    legend = "".join(f"<li>{swatch(colour)}{name}</li>"
                     for name, colour in colours.PURPOSES.items())
    measured = any(peak(rank) for rank in found["ranks"])
    legend += (f'<li>{swatch("var(--idle)")}'
               f'{"program and libraries" if measured else "as the plan predicts"}</li>')
    if measured and any(rank.get("predicted_memory_bytes") for rank in found["ranks"]):
        legend += '<li><i class="tick"></i>prediction of the plan</li>'
    columns = [("rank", "number"), ("place", "text"), ("peak", "number"),
               *((name, "number") for name in memory.PURPOSES), ("plan", "number"),
               ("limit", "number")]
    return (f'<h3>Peak of each rank, by purpose</h3><ul class="legend">{legend}</ul>'
            f'<div class="bars tall" tabindex="0" role="region" aria-label="Memory of each rank">'
            f'{"".join(lines)}</div><details><summary>As a table</summary>'
            f'{table("Peaks of memory", columns, rows)}</details>')


def _as_planned(one):
    """Whether a rank sent in each step what the plan says."""
    return one["planned"] is not None and all(
        abs(one[name] - one["planned"]) <= 5e-4 * one["planned"] for name in ("min", "mean", "max"))


def _sent(found, makes_clips):
    planned = any(one["planned"] is not None for one in found["step_bytes"])
    columns = [("rank", "number"), ("sent in all", "number"), ("steps", "number"),
               ("a step", "number"), ("min", "number"), ("max", "number"), ("plan", "number"),
               ("measured / plan", "number")]
    by_rank = {one["rank"]: one for one in found["step_bytes"]}
    rows = []
    for rank in found["ranks"]:
        one = by_rank.get(rank["rank"])
        cells = ([number(one["steps"]), size(one["mean"]), size(one["min"]), size(one["max"]),
                  size(one["planned"]),
                  f"{one['ratio']:.3f}" if one["ratio"] is not None else "–"] if one else ["–"] * 6)
        rows.append([str(rank["rank"]), size(rank["bytes_sent"]), *cells])
    total = sum(rank["bytes_sent"] for rank in found["ranks"])
    words = f'All ranks together sent {size(total)}.'
    if not makes_clips:
        pass  # the plan is of other steps
    elif not planned:
        words += " job.h5 has no plan to compare with."
    elif all(map(_as_planned, found["step_bytes"])):
        words += " Each rank sent in a step what the plan says."
    else:
        words += (" Steps sent other amounts than the plan says for most of them: where the last "
                  "clips are made by more ranks each, steps send more.")
    return f"<p>{words}</p>" + table("Bytes sent by each rank", columns, rows)

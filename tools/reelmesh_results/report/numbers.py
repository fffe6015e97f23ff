"""The numbers that the page, the text and --json show. schema.json describes each of them."""
import collections
import datetime
import math
import numbers

import numpy as np

from ..hdf5 import row_as_dict, text
from ..span_names import LANES
from . import memory

VERSION = 1


def of(job, trace, sums, extent, peaks):
    """trace, sums, extent: None without a trace. peaks: FLOP/s and byte/s of a rank given by the
    user, 0 where the trace says them."""
    return {"format_version": VERSION, "job": _job(job, trace, extent), "clips": _clips(job),
            "training": job.training.numbers() if job.training else None,
            "trace": _trace(job, trace, sums, extent, peaks) if trace else None,
            "plan": job.index.attributes.get("plan", ""), "options": job.options,
            "provenance": _provenance(job), "problems": job.problems}


def _job(job, trace, extent):
    found = job.index.attributes
    hosts = [text(host) for host in np.atleast_1d(found.get("hosts", []))]
    sizes = collections.Counter(size_of(clip) for clip in job.clips if size_of(clip))
    devices = sorted({row["device"] for row in trace.rank_rows()}) if trace else []
    return {"folder": str(job.folder.resolve()), "status": job.status,
            "start": found.get("start", ""), "end": found.get("end", ""),
            "wall_seconds": _wall(found, job, extent), "prediction": _prediction(found),
            "planned_again": [text(line) for line in np.atleast_1d(found.get("planned_again", []))],
            "version": found.get("version", ""),
            "model": job.index.provenance.get("model_path") or job.options.get("model.path", ""),
            "ranks": len(trace.ranks) if trace else len(hosts),
            "hosts": list(dict.fromkeys(hosts)), "devices": devices,
            "sizes": [size for size, _ in sizes.most_common()],
            "now": job.now if job.status in ("running", "unfinished") else None}


def _wall(found, job, extent):
    """Seconds from start to end; until now while the job runs; else what the trace covers."""
    measured = found.get("measured_seconds")
    if _is_time(measured) and job.status != "running":
        return float(measured)
    try:
        start, end = (datetime.datetime.fromisoformat(str(found[name]).replace("Z", "+00:00"))
                      if found.get(name) else None for name in ("start", "end"))
        if job.status == "running":
            end = datetime.datetime.now(datetime.timezone.utc)
        if start and end and end > start and job.status != "unfinished":
            seconds = (end - start).total_seconds()
            # The attributes are of whole seconds, a short job is measured by its trace.
            return extent.length / 1e9 if extent and seconds < 10 else seconds
    except (KeyError, ValueError, TypeError):
        pass
    return extent.length / 1e9 if extent else None


def _prediction(found):
    """Seconds of the job as predicted and as measured; None if one of them is not known."""
    predicted, measured = (found.get(f"{name}_seconds") for name in ("predicted", "measured"))
    if not (_is_time(predicted) and _is_time(measured)):
        return None
    return {"predicted_seconds": float(predicted), "measured_seconds": float(measured),
            "error_percent": 100 * (float(predicted) / float(measured) - 1)}


def _is_time(value):
    return isinstance(value, numbers.Real) and math.isfinite(value) and value > 0


def size_of(clip):
    """'9×64×64': frames, height, width; '' if they are not known."""
    sizes = [clip.settings.get(name) for name in ("frames", "height", "width")]
    return "×".join(map(str, sizes)) if all(sizes) else ""


def _clips(job):
    count = collections.Counter(clip.state for clip in job.clips)
    return {"total": len(job.clips),
            **{state: count[state] for state in ("complete", "preview", "failed", "damaged",
                                                 "saved", "missing")},
            "items": [{**clip.settings, "clip": clip.number, "state": clip.state,
                       "reason": clip.reason, "file": clip.path.relative_to(job.folder).as_posix()}
                      for clip in job.clips]}


def _provenance(job):
    found = {name: value.tolist() if isinstance(value, np.ndarray) else
             value.item() if isinstance(value, np.generic) else value
             for name, value in job.index.provenance.items()}
    found = {name: [text(one) for one in value] if isinstance(value, list) else value
             for name, value in found.items()}
    if "git_changed" in found:
        found["git_changed"] = bool(found["git_changed"])
    found.setdefault("git_revision", job.index.attributes.get("git_revision", ""))
    if job.index.hosts is not None:
        found["ranks"] = [row_as_dict(row) for row in job.index.hosts]
    return found


def _trace(job, trace, sums, extent, peaks):
    rows = trace.rank_rows()
    names = _names(trace, sums, extent, rows, peaks)
    return {"complete": trace.complete,
            "level": str(trace.attributes.get("level") or job.options.get("trace.level", "")),
            "start": str(trace.attributes.get("start", "")), "spans": trace.count,
            "seconds": extent.length / 1e9, "names": names,
            "ranks": [_rank(i, row, trace, sums, extent) for i, row in enumerate(rows)],
            "steps": _steps(job, sums), "step_bytes": _step_bytes(job, sums, rows),
            "memory": memory.peaks(trace)}


def _rank(i, row, trace, sums, extent):
    ns = dict.fromkeys(LANES, 0)
    for kind, (lane, _) in enumerate(sums.kinds.pairs):
        name = trace.lanes.texts[lane]
        ns[name] = ns.get(name, 0) + int(sums.sums["self_ns"][i, kind])
    ns["other"] = max(0, extent.length - sum(ns.values()))
    kept = ("rank", "host", "role", "device", "threads", "kernels", "peak_memory_bytes",
            "peak_device_memory_bytes", "clock_offset_ns", "clock_drift_ppb",
            "memory_limit_bytes", "predicted_memory_bytes")
    return {**{name: row[name] for name in kept if name in row},
            "seconds": {lane: time / 1e9 for lane, time in ns.items()},
            "bytes_sent": int(sums.sums["top_bytes"][i].sum())}


def _names(trace, sums, extent, rows, peaks):
    """A row for each lane and name, the longest in all first."""
    flops_peak, memory_peak = (np.array([given or row.get(name, 0) or 0 for row in rows], float)
                               for given, name in zip(peaks, ("peak_flops_per_s",
                                                              "peak_memory_bytes_per_s")))
    found = []
    for kind, (lane, name) in enumerate(sums.kinds.pairs):
        column = {key: values[:, kind] for key, values in sums.sums.items()}
        calls, seconds = int(column["calls"].sum()), column["ns"] / 1e9
        total = float(seconds.sum())
        one = {"name": trace.names.texts[name], "lane": trace.lanes.texts[lane], "calls": calls,
               "seconds": total, "self_seconds": float(column["self_ns"].sum()) / 1e9,
               "share": float(column["self_ns"].sum()) / (extent.length * len(rows)),
               "call_seconds": {"mean": total / calls, "min": int(sums.min_ns[kind]) / 1e9,
                                "max": int(sums.max_ns[kind]) / 1e9},
               "rank_seconds": {"mean": float(seconds.mean()), "min": float(seconds.min()),
                                "max": float(seconds.max())},
               "innermost": int(column["childless"].sum()) == calls}
        for key, peak in (("flops", flops_peak), ("memory_bytes", memory_peak), ("bytes", None)):
            done = int(column[key].sum())
            one[key] = done
            one[f"{key}_per_s"] = done / total if done and total else None
            if peak is not None:
                possible = float((seconds * peak).sum())  # of the ranks that made these calls
                one[f"{key}_share_of_peak"] = done / possible if done and possible else None
        found.append(one)
    return sorted(found, key=lambda one: -one["seconds"])


def _replicas(job, steps):
    """rank → (number, name) of its replica, from the plan; else by the first rank with a clip."""
    groups = job.index.plan.get("denoise") or []
    found = {rank: (number, f"replica {number}") for number, group in enumerate(groups)
             for rank in range(group["first"], group["first"] + group["count"])}
    if not found and len(steps["clip"]):
        pairs = np.unique(np.stack([steps["clip"], steps["rank"]]), axis=1)
        first = {}
        for clip, rank in pairs.T.tolist():
            first.setdefault(clip, rank)
            leader = found.get(rank, (rank,))[0]
            leader = min(leader, first[clip])
            found[rank] = (leader, "")
        groups = collections.Counter(leader for leader, _ in found.values())
        found = {rank: (leader, f"rank {leader}" if groups[leader] == 1 else
                        f"{groups[leader]} ranks from {leader}")
                 for rank, (leader, _) in found.items()}
    return found


def step_seconds(job, sums):
    """(size, replica) → seconds of its steps, the longest over the ranks that share a step."""
    steps = sums.steps
    if not len(steps["clip"]):
        return {}
    order = np.lexsort((steps["step"], steps["clip"]))
    clip, step = steps["clip"][order], steps["step"][order]
    first = np.flatnonzero(np.concatenate([[True], (np.diff(clip) != 0) | (np.diff(step) != 0)]))
    longest = np.maximum.reduceat(steps["duration_ns"][order], first) / 1e9
    rank = np.minimum.reduceat(steps["rank"][order], first)
    replicas = _replicas(job, steps)
    size = {one.number: size_of(one) for one in job.clips}
    key = np.stack([clip[first], rank])
    pairs, which = np.unique(key, axis=1, return_inverse=True)
    found = {}
    for number, (one, leader) in enumerate(pairs.T.tolist()):
        found.setdefault((size.get(one, ""), replicas.get(leader, (leader, ""))),
                         []).append(longest[which == number])
    return {(size, replica[1]): np.concatenate(parts)
            for (size, replica), parts in sorted(found.items())}


def _steps(job, sums):
    found = []
    for (size, replica), seconds in step_seconds(job, sums).items():
        quantiles = np.quantile(seconds, (0.05, 0.25, 0.5, 0.75, 0.95)).tolist()
        found.append({"size": size, "replica": replica, "count": len(seconds),
                      "mean": float(seconds.mean()), "min": float(seconds.min()),
                      **dict(zip(("p05", "p25", "median", "p75", "p95"), quantiles)),
                      "max": float(seconds.max())})
    return found


def _batch_sizes(job, firsts, clips):
    """How many clips are in the batch of each step, which carries the number of its first clip:
    those of the same size up to the first one of the next batch."""
    try:
        limit = max(1, int(job.options.get("sample.batch", 1)))
    except ValueError:
        limit = 1
    if not len(firsts):
        return np.ones(0, int)
    known = np.unique(firsts)
    following = np.append(known[1:], np.iinfo(known.dtype).max)
    counts = np.searchsorted(clips, following) - np.searchsorted(clips, known)
    return np.clip(counts, 1, limit)[np.searchsorted(known, firsts)]


def _step_bytes(job, sums, rows):
    """Bytes that each rank sent in a step of a clip, against those that the plan says, for clips of
    the plan's size. The step of a batch is divided by its clips."""
    plan = job.index.plan
    planned = {one.get("rank"): one.get("step_sent_bytes") for one in plan.get("by_rank", [])}
    clip = plan.get("clip") or {}
    size = "×".join(str(clip.get(name, "")) for name in ("frames", "height", "width"))
    of_size = [one.number for one in job.clips if not clip or size_of(one) in (size, "")]
    steps, found = sums.steps, []
    fits = np.isin(steps["clip"], of_size) if clip else np.ones(len(steps["clip"]), bool)
    sent_by_all = steps["bytes"] // _batch_sizes(job, steps["clip"], np.array(of_size, int))
    for row in rows:
        sent = sent_by_all[fits & (steps["rank"] == row["rank"])]
        if len(sent):
            mean, plan_says = float(sent.mean()), planned.get(row["rank"])
            found.append({"rank": row["rank"], "steps": len(sent), "mean": mean,
                          "min": int(sent.min()), "max": int(sent.max()), "planned": plan_says,
                          "ratio": mean / plan_says if plan_says else None})
    return found

"""Writes a trace in the Trace Event Format, which Perfetto and chrome://tracing read: JSON with a
process for each rank and a thread for each lane.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""
import array
import itertools
import json
import math

import numpy as np

from . import by_rank, span_names
from .arrows import Arrows, microseconds
from .counter_events import Counters

# None: all names, also those of other versions of reelmesh.
LEVELS = {"stages": span_names.up_to("stages"), "layers": span_names.up_to("layers"), "ops": None}
LANES = (*span_names.LANES, "messages")  # in this order; others follow
EXCHANGE = span_names.lanes.exchange
CHUNK = 20_000  # events per write


def process(rank):
    """The process id of a rank. Those of its threads follow, since Perfetto wants different ids in
    all processes."""
    return 1000 * (rank + 1)


class Lanes:
    """The threads of a rank. Spans of one lane that overlap without one containing the other would
    be drawn wrongly on one thread: they are placed on a second one, 'compute 2', and so on."""

    def __init__(self, rank):
        self._rank = rank
        self._threads = {}  # (lane, its thread from 0) → thread id
        self._open = {}  # lane → for each of its threads the ends of the spans that are open

    def place(self, lane, start, end):
        """(thread from 0, thread id) of a span; spans of a lane come sorted by start."""
        threads = self._open.setdefault(lane, [])
        for number, ends in enumerate(threads):
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                return number, self._threads[lane, number]
        threads.append([end])
        number = len(threads) - 1
        self._threads[lane, number] = process(self._rank) + 1 + len(self._threads)
        return number, self._threads[lane, number]

    def first(self, lane):
        """The id of the first thread of a lane; 0 if it has none."""
        return self._threads.get((lane, 0), 0)

    def events(self):
        """Names and order of the threads."""
        order = {lane: i for i, lane in enumerate(LANES)}
        threads = sorted(self._threads.items(),
                         key=lambda one: (order.get(one[0][0], len(LANES)), one[0]))
        for i, ((lane, number), thread) in enumerate(threads):
            name = lane if number == 0 else f"{lane} {number + 1}"
            yield from _metadata(self._rank, thread, "thread", name, i)


def _metadata(rank, thread, kind, name, order):
    for event, arguments in ((f"{kind}_name", {"name": name}),
                             (f"{kind}_sort_index", {"sort_index": order})):
        yield json.dumps({"ph": "M", "pid": process(rank), "tid": thread, "name": event,
                          "args": arguments})


class Writer:
    """trace: an open Trace. ranks: a set, or None for all. begin, end: nanoseconds. write(text).
    After `run`: `spans`, `arrows` and `samples` of counters that were written; `backwards`:
    messages without an arrow, see Arrows."""

    def __init__(self, trace, write, ranks=None, begin=-math.inf, end=math.inf, level="ops"):
        self._trace, self._write = trace, write
        self._wanted, self._begin, self._end = ranks, begin, end
        self._names = LEVELS[level]
        self._arrows = Arrows(process)
        self._first = True
        self.spans = self.samples = 0

    def run(self, about):
        """about: texts that the file carries as "otherData"."""
        spans = by_rank.index(self._trace.spans(), "start_ns")
        messages = by_rank.index(self._trace.messages(), "start_ns")
        counters = by_rank.index(self._trace.counters(), "time_ns")
        rows = {row["rank"]: row for row in self._trace.rank_rows()}
        self._write('{"displayTimeUnit": "ns", "otherData": ' + json.dumps(about)
                    + ', "traceEvents": [\n')
        for rank in sorted({*rows, *spans, *messages, *counters}):
            if self._wanted is not None and rank not in self._wanted:
                continue
            self._events(_process(rank, rows.get(rank)))
            lanes = Lanes(rank)
            exchanges = (array.array("q"), array.array("q"))  # starts and ends
            if rank in spans:
                self._events(self._spans_of(rank, spans[rank], lanes, exchanges))
            if rank in messages:
                self._events(self._messages_of(rank, messages[rank], lanes, exchanges))
            if rank in counters:
                self._events(self._counters_of(rank, counters[rank]))
            self._events(lanes.events())
        self._events(self._arrows.events())
        self._write("\n]}\n")
        self.arrows, self.backwards = self._arrows.drawn, self._arrows.backwards

    def _events(self, lines):
        lines = iter(lines)
        while chunk := list(itertools.islice(lines, CHUNK)):
            self._write(("" if self._first else ",\n") + ",\n".join(chunk))
            self._first = False

    # -- spans ------------------------------------------------------------------------------------

    def _in_time(self, block):
        start = block["start_ns"]
        return (start < self._end) & (start + block["duration_ns"] > self._begin)

    def _keep_span(self, block):
        keep = self._in_time(block)
        if self._names is not None:
            wanted = np.array([name in self._names for name in self._trace.names.texts])
            keep &= wanted[block["name"]]
        return keep

    def _spans_of(self, rank, rows, lanes, exchanges):
        pid = process(rank)
        blocks = by_rank.ordered(self._trace.spans, rows, _outer_first, self._keep_span)
        for block in blocks:
            names = [json.dumps(name) for name in self._trace.names.texts]
            texts = self._trace.lanes.texts
            categories = [json.dumps(lane) for lane in texts]
            columns = (block[name].tolist() for name in
                       ("lane", "name", "clip", "step", "layer", "start_ns", "duration_ns",
                        "bytes", "flops", "memory_bytes"))
            self.spans += len(block["lane"])
            for (lane, name, clip, step, layer, start, duration, sent, flops,
                 memory) in zip(*columns):
                category, lane = categories[lane], texts[lane]
                number, tid = lanes.place(lane, start, start + duration)
                if lane == EXCHANGE and number == 0:
                    exchanges[0].append(start)
                    exchanges[1].append(start + duration)
                args = []
                if clip >= 0:
                    args.append(f'"clip":{clip}')
                if step >= 0:
                    args.append(f'"step":{step}')
                if layer >= 0:
                    args.append(f'"layer":{layer}')
                if sent:
                    args.append(f'"bytes sent":{sent}')
                if flops:
                    args.append(f'"FLOPs":{flops}')
                    if duration:
                        args.append(f'"FLOP/s":{flops / duration * 1e9:.4g}')
                if memory:
                    args.append(f'"memory bytes":{memory}')
                yield (f'{{"ph":"X","pid":{pid},"tid":{tid},"cat":{category},'
                       f'"name":{names[name]},"ts":{microseconds(start)},'
                       f'"dur":{microseconds(duration)},"args":{{{",".join(args)}}}}}')

    # -- messages ---------------------------------------------------------------------------------

    def _messages_of(self, rank, rows, lanes, exchanges):
        """Slices of the messages that lie in no span of the lane of exchanges; notes all for
        arrows. Without the spans of operations, only the messages in spans that are left."""
        starts = np.frombuffer(exchanges[0], np.int64)
        last_ends = np.maximum.accumulate(np.frombuffer(exchanges[1], np.int64))
        blocks = by_rank.ordered(self._trace.messages, rows, _outer_first, self._in_time)
        for block in blocks:
            # An arrow leaves at the start of the send, and arrives at the end of the receive.
            receive = block["direction"] == 1
            at = np.where(receive, block["start_ns"] + np.maximum(block["duration_ns"] - 1, 0),
                          block["start_ns"])
            threads = np.where(_inside(at, starts, last_ends), lanes.first(EXCHANGE), 0)
            if self._names is not None:
                block = by_rank.chosen(block, threads > 0)
                receive, at, threads = (one[threads > 0] for one in (receive, at, threads))
            for i in np.flatnonzero(threads == 0).tolist():
                row = {name: column[i].item() for name, column in block.items()}
                start, duration = row["start_ns"], max(1, row["duration_ns"])
                threads[i] = lanes.place("messages", start, start + duration)[1]
                name = f"{'receive from' if receive[i] else 'send to'} rank {row['peer']}"
                args = {name: row[name] for name in ("clip", "step", "layer") if row[name] >= 0}
                yield json.dumps({
                    "ph": "X", "pid": process(rank), "tid": int(threads[i]), "cat": "messages",
                    "name": name, "ts": start / 1000, "dur": duration / 1000,
                    "args": args | {"bytes": row["bytes"]}})
            for side in (0, 1):
                ends = receive == side
                self._arrows.note(side, by_rank.chosen(block, ends), threads[ends], at[ends])

    # -- counters ---------------------------------------------------------------------------------

    def _counters_of(self, rank, rows):
        counters = Counters(process(rank), self._trace.counter_names())
        blocks = by_rank.ordered(
            self._trace.counters, rows, lambda block: (block["counter"], block["time_ns"]),
            lambda block: (block["time_ns"] >= self._begin) & (block["time_ns"] <= self._end))
        for block in blocks:
            self.samples += len(block["value"])
            yield from counters.events(block)
        yield from counters.last()


def _outer_first(block):
    """Keys to sort by start; of equal starts the longest first."""
    return -block["duration_ns"], block["start_ns"]


def _inside(at, starts, last_ends):
    """Whether each time lies in one of the spans. last_ends: the largest end so far."""
    if not len(starts):
        return np.zeros(len(at), bool)
    before = np.searchsorted(starts, at, side="right")
    return (before > 0) & (last_ends[before - 1] > at)


def _process(rank, row):
    """Name and labels of a rank. row: of /ranks as a dict, or None."""
    name, labels = f"rank {rank}", ""
    if row is not None:
        name += f": {row['role']} ({row['host']}, {row['device']})"
        labels = f"{row['threads']} threads, at most {row['peak_memory_bytes'] / 1e9:.3g} GB"
        if row["peak_device_memory_bytes"]:
            labels += f", {row['peak_device_memory_bytes'] / 1e9:.3g} GB on the device"
    yield from _metadata(rank, process(rank), "process", name, rank)
    if labels:
        yield json.dumps({"ph": "M", "pid": process(rank), "tid": process(rank),
                          "name": "process_labels", "args": {"labels": labels}})

#!/usr/bin/env python3
"""Times in the trace of a job, of its first rank, as rows of Markdown tables.

    tests/gpu/times_of.py OUT

Each call of each stage in order, the first ones with what is selected and loaded then; and, if the
trace has operations (trace.level = ops), those of a transformer layer in the last step in their
order, means over all layers, and those of the last decode and of the last image encoded, added up
by their sizes. Needs h5py; ends with 77 without it.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/tools")]
from reelmesh_results.span_names import names  # noqa: E402

STAGES = (names.load, names.encode, names.encode_image, names.encode_video, names.denoise_step,
          names.decode, names.train_step)
OPERATIONS = (names.product, names.attention, names.norm, names.convolution, names.exchange,
              names.handover)
SIZES = 16  # of operations of a stage, those that take longest


def of_clip(span):
    return "" if span["clip"] < 0 else f" of clip {span['clip']}"


def rates(count, seconds, flops, memory):
    """Cells: TFLOP/s and GB/s of `count` operations."""
    return (f"{count * flops / seconds * 1e-12:.4g}" if flops and seconds else "",
            f"{count * memory / seconds * 1e-9:.4g}" if memory and seconds else "")


def stages(spans):
    yield "| stage | calls, s |"
    yield "| --- | --- |"
    for name in STAGES:
        times = [f"{span['duration'] * 1e-9:.4g}" for span in spans if span["name"] == name]
        if times:
            yield f"| {name} | {' '.join(times)} |"


def within(spans, outer):
    """Spans that begin in another one, without it."""
    return [span for span in spans if span is not outer
            and 0 <= span["start"] - outer["start"] < outer["duration"]]


def layer(spans):
    """Operations of a transformer layer in the last step."""
    steps = [span for span in spans if span["name"] == names.denoise_step]
    if not steps:
        return
    inside = within(spans, steps[-1])
    blocks = [span for span in inside if span["name"] == names.transformer_block]
    layers = [[span for span in within(inside, block) if span["name"] in OPERATIONS]
              for block in blocks]
    if not layers or not layers[0]:
        return
    yield ""
    yield (f"| of a layer, mean of {len(layers)} in the last step{of_clip(steps[-1])} | ms | "
           "TFLOP/s | GB/s |")
    yield "| --- | ---: | ---: | ---: |"
    alike = [some for some in layers if len(some) == len(layers[0])]
    total = 0
    for place in zip(*alike):
        mean = sum(span["duration"] for span in place) * 1e-9 / len(place)
        total += mean
        cells = rates(1, mean, place[0]["flops"], place[0]["memory"])
        if not place[0]["flops"] and not place[0]["memory"]:
            continue  # an exchange of one rank with itself
        yield f"| {place[0]['name']} | {mean * 1e3:.4g} | {' | '.join(cells)} |"
    mean = sum(block["duration"] for block in blocks) * 1e-9 / len(blocks)
    yield f"| all, between and beside them {(mean - total) * 1e3:.4g} | {mean * 1e3:.4g} | | |"
    step = steps[-1]["duration"] * 1e-9
    yield (f"| step, outside its layers {(step - mean * len(blocks)) * 1e3:.4g} | {step * 1e3:.4g} "
           "| | |")


def by_size(spans, stage):
    """Operations within the last call of a stage, added up by their sizes."""
    calls = [span for span in spans if span["name"] == stage]
    if not calls:
        return
    sums = {}
    for span in within(spans, calls[-1]):
        if span["name"] in OPERATIONS:
            found = sums.setdefault((span["name"], span["flops"], span["memory"]), [0, 0])
            found[0] += 1
            found[1] += span["duration"] * 1e-9
    if not sums:
        return
    yield ""
    yield f"| in {stage}{of_clip(calls[-1])} | calls | ms | TFLOP/s | GB/s |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    rows = sorted(sums.items(), key=lambda item: -item[1][1])
    for (name, flops, memory), (count, seconds) in rows[:SIZES]:
        cells = rates(count, seconds, flops, memory)
        size = f"{flops * 1e-9:.4g} GFLOP" if flops else f"{memory * 1e-6:.4g} MB"
        yield f"| {name} of {size} | {count} | {seconds * 1e3:.4g} | {' | '.join(cells)} |"
    rest = sum(seconds for _, (_, seconds) in rows[SIZES:])
    known = sum(seconds for _, (_, seconds) in rows)
    yield f"| others | | {rest * 1e3:.4g} | | |"
    yield f"| beside operations | | {(calls[-1]['duration'] * 1e-9 - known) * 1e3:.4g} | | |"


def tables(spans):
    yield from stages(spans)
    yield from layer(spans)
    for stage in (names.decode, names.encode_image, names.encode_video):
        yield from by_size(spans, stage)


def main(out):
    try:
        import h5py
        from tables import table
    except ImportError as error:
        print(f"left out: {error}")
        return 77
    with h5py.File(pathlib.Path(out, "trace.h5")) as file:
        rows = table(file, "spans")
    spans = [{"name": row["name"].decode(), "clip": int(row["clip"]), "step": int(row["step"]),
              "start": int(row["start_ns"]), "duration": int(row["duration_ns"]),
              "flops": int(row["flops"]), "memory": int(row["memory_bytes"])}
             for row in rows if row["rank"] == 0]
    spans.sort(key=lambda span: (span["start"], -span["duration"]))
    print("\n".join(tables(spans)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

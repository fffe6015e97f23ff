#!/usr/bin/env python3
"""Steps of jobs on several numbers of ranks, as rows of a Markdown table.

    tests/gpu/efficiency.py OUT …

The first OUT is of one rank. A step takes as long as on its slowest rank; the median of all but the
first two is taken, in which algorithms are selected and a graph is captured. Needs h5py; ends with
77 without it.
"""
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/tools")]
from reelmesh_results.span_names import names  # noqa: E402

SKIPPED = 2


def step_of(file):
    """Ranks that denoise, and seconds of a step."""
    from tables import table
    steps = {}
    for span in table(file, "spans"):
        if span["name"].decode() == names.denoise_step:
            key = int(span["clip"]), int(span["step"])
            steps.setdefault(key, {})[int(span["rank"])] = int(span["duration_ns"]) * 1e-9
    if len(steps) <= SKIPPED:
        raise ValueError(f"found {len(steps)} steps, expected more than {SKIPPED}")
    longest = [max(of_ranks.values()) for _, of_ranks in sorted(steps.items())]
    return max(map(len, steps.values())), statistics.median(longest[SKIPPED:])


def main(outs):
    try:
        import h5py
    except ImportError as error:
        print(f"left out: {error}")
        return 77
    print("| job | ranks | step, s | faster | efficiency |\n| --- | ---: | ---: | ---: | ---: |")
    alone = None
    for out in outs:
        with h5py.File(pathlib.Path(out, "trace.h5")) as file:
            ranks, seconds = step_of(file)
        alone = alone or ranks * seconds
        print(f"| {pathlib.Path(out).name} | {ranks} | {seconds:.4g} | {alone / seconds:.3g} | "
              f"{100 * alone / seconds / ranks:.3g} % |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

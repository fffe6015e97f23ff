#!/usr/bin/env python3
"""Nsight Compute's figures of five kernels of CogVideoX-5b in bfloat16, as rows of a table.

    tests/gpu/profile.py NCU BENCH_GPU

Calls BENCH_GPU --once for one operation at a time: all kernels that it starts are the operation's.
Clocks are left as they are (ncu would lock them to the base clock), so times are those of a job.
Ends with 77 if this user may not read the GPU's counters, with 1 if an operation gave no figures.
"""
import csv
import subprocess
import sys

# Operation (bench_gpu --filter) -> how many of its first kernels. The first call of two is cold.
OPERATIONS = {"5b/attention_17776": 2, "5b/linear_up_gelu": 2, "5b/modulated_layer_norm": 2,
              "5b/add_gated": 2, "vae/convolution_3x3x3_128_to_128": 4}
# Metric -> head of its column.
METRICS = {"gpu__time_duration.sum": "time",
           "sm__throughput.avg.pct_of_peak_sustained_elapsed": "SM",
           "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory",
           "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
           "launch__registers_per_thread": "registers"}


def kernels(text):
    """ncu's CSV, one row a metric -> [(kernel, metric -> "value unit")] in order of launch."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found = {}
    for row in csv.DictReader(lines[first:]):
        name, values = found.setdefault(row["ID"], (row["Kernel Name"], {}))
        values[row["Metric Name"]] = f"{row['Metric Value']} {row['Metric Unit']}".strip()
    return list(found.values())


def main(ncu, bench):
    print(f"| operation | kernel | {' | '.join(METRICS.values())} |")
    print(f"| --- | --- |{' ---: |' * len(METRICS)}", flush=True)
    status = 0
    for operation, count in OPERATIONS.items():
        done = subprocess.run(
            [ncu, "--csv", "--clock-control", "none", "--launch-count", str(count), "--metrics",
             ",".join(METRICS), bench, "--once", "--filter", operation, "bfloat16"],
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if "ERR_NVGPUCTRPERM" in done.stdout:
            print("left out: this user may not read the GPU's counters", file=sys.stderr)
            return 77
        found = kernels(done.stdout)
        for name, values in found:
            cells = [values.get(metric, "") for metric in METRICS]
            print(f"| {operation} | {name.split('(')[0][:60]} | {' | '.join(cells)} |", flush=True)
        if not found:
            status = 1
            print(f"{operation}: no figures:\n{done.stdout[-1500:]}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

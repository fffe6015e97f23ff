"""Reads trace.h5 as written by trace_test.cpp: the spans of all ranks, sorted, on one clock."""

import sys

try:
    import h5py
except ImportError as missing:
    sys.exit(f"read_trace.py: {missing}; install python3-h5py")

PATH, RANKS = sys.argv[1], int(sys.argv[2])
FIELDS = ("rank", "lane", "name", "clip", "step", "layer", "start_ns", "duration_ns", "bytes",
          "flops")

expected = []  # start times relative to the rank's first span: clock offsets are inexact
for rank in range(RANKS):
    if rank == 1:
        continue
    expected.append((rank, b"file", b"load", -1, -1, -1, 0, 10, 0, 0))
    expected.append((rank, b"compute", b"denoise", 0, -1, -1, 80, 500, 9, 5))
    expected.append((rank, b"compute", b"denoise_step", 0, 3, -1, 80, 50, 7, 1 << 40))
    expected += [(rank, b"x", b"more", i, i, i, 680 + i, 0, 0, 0) for i in range(1, rank)]

with h5py.File(PATH, "r") as file:
    assert set(file) == {"spans", "ranks", "memory"}, set(file)
    assert file["spans"].dtype.names == FIELDS, file["spans"].dtype.names
    spans = file["spans"][...]
    starts = {row["rank"]: row["start_ns"] for row in reversed(spans)}  # of each rank's first span
    assert min(starts.values()) == 0 and max(starts.values()) < 10_000_000, starts
    found = [tuple(row[f].item() - (starts[row["rank"]] if f == "start_ns" else 0)
                   if f not in ("lane", "name") else bytes(row[f]) for f in FIELDS)
             for row in spans]
    assert found == expected, f"found {found}\nexpected {expected}"
    ranks = file["ranks"][...]
    assert ranks.dtype.names == ("rank", "host", "role", "device", "threads", "peak_memory_bytes",
                                 "peak_device_memory_bytes", "clock_offset_ns", "padded_products",
                                 "kernels"), ranks.dtype.names
    for rank, row in enumerate(ranks):
        host = f"nœud-{rank}".encode()
        assert row.tolist()[:7] == (rank, host, b"all", b"cpu", 2, 4096, 8192), row
        assert row.tolist()[8:] == (10 + rank, b"attention: own kernels; products: a library"), row
    assert ranks["clock_offset_ns"][0] == 0
    purposes = (b"activations", b"weights", b"workspace", b"exchange", b"queue")
    expected = [(rank, place, purpose, 100 * rank + 10 * i + at, 7 * at + i)
                for rank in range(RANKS) for at, place in enumerate((b"host", b"device"))
                for i, purpose in enumerate(purposes)]
    assert file["memory"].dtype.names == ("rank", "place", "purpose", "peak_bytes",
                                          "bytes_at_peak"), file["memory"].dtype.names
    assert file["memory"][...].tolist() == expected, file["memory"][...]

"""Reads trace.h5 as written by trace_test.cpp: the spans, messages and counters of all ranks on one
clock; xarray opens all tables. The test has recorded the same TIMES times on each rank, 1 ms
apart."""

import datetime
import sys

try:
    import h5netcdf  # noqa: F401
    import h5py
    import netCDF4  # noqa: F401
    import numpy
    import xarray
except ImportError as missing:
    sys.exit(f"read_trace.py: {missing}; install python3-h5py python3-xarray python3-h5netcdf "
             "python3-netcdf4")

PATH, RANKS, TIMES = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
COMPLETE = "complete" in sys.argv[4:]
COLUMNS = {  # name -> type, unit
    "spans": {"rank": ("i4", ""), "lane": ("i1", ""), "name": ("i2", ""), "clip": ("i4", ""),
              "step": ("i4", ""), "layer": ("i4", ""), "start_ns": ("i8", "ns"),
              "duration_ns": ("i8", "ns"), "bytes": ("i8", "byte"), "flops": ("i8", "FLOP"),
              "memory_bytes": ("i8", "byte")},
    "messages": {"rank": ("i4", ""), "peer": ("i4", ""), "direction": ("i1", ""),
                 "clip": ("i4", ""), "step": ("i4", ""), "layer": ("i4", ""),
                 "start_ns": ("i8", "ns"), "duration_ns": ("i8", "ns"), "bytes": ("i8", "byte"),
                 "channel": ("i8", ""), "number": ("i8", "")},
    "counters": {"rank": ("i4", ""), "counter": ("i1", ""), "time_ns": ("i8", "ns"),
                 "value": ("i8", "byte or clip"), "max": ("i8", "byte or clip")},
    "ranks": {"rank": ("i4", ""), "host": ("O", ""), "role": ("O", ""), "device": ("O", ""),
              "threads": ("i4", "1"), "peak_memory_bytes": ("i8", "byte"),
              "peak_device_memory_bytes": ("i8", "byte"), "clock_offset_ns": ("i8", "ns"),
              "padded_products": ("i8", "1"), "kernels": ("O", ""),
              "clock_drift_ppb": ("i8", "ns/s"), "memory_limit_bytes": ("i8", "byte"),
              "predicted_memory_bytes": ("i8", "byte"), "peak_flops_per_s": ("f8", "FLOP/s"),
              "peak_memory_bytes_per_s": ("f8", "byte/s")},
    "memory": {"rank": ("i4", ""), "place": ("i1", ""), "purpose": ("i1", ""),
               "peak_bytes": ("i8", "byte"), "bytes_at_peak": ("i8", "byte")},
}
DIMENSIONS = {"spans": "span", "messages": "message", "counters": "sample", "ranks": "rank",
              "memory": "row"}
MS = 1_000_000


def table(file, name):
    """The rows of a table as a structured array; numbers of an enumeration as its words."""
    columns = {column: file[name][column] for column in COLUMNS[name]}
    values = {column: found.asstr()[()] if found.dtype.kind == "O" else found[()]
              for column, found in columns.items()}
    for column, found in columns.items():
        if "flag_meanings" in found.attrs:
            words = found.attrs["flag_meanings"].split()
            assert found.attrs["flag_values"].tolist() == list(range(len(words)))
            assert found.attrs["flag_values"].dtype == found.dtype
            values[column] = numpy.array(words, "O")[values[column]]
    made = numpy.empty(len(values["rank"]), [(column, found.dtype)
                                             for column, found in values.items()])
    for column, found in values.items():
        made[column] = found
    return made


def check_structure(file):
    assert set(file) == set(COLUMNS), set(file)
    assert set(file.attrs) == {"format_version", "title", "level", "start", "complete"}
    assert file.attrs["format_version"] == 2
    assert file.attrs["level"] == "ops"
    assert bool(file.attrs["complete"]) == COMPLETE
    start = datetime.datetime.fromisoformat(file.attrs["start"])
    passed = datetime.datetime.now(datetime.timezone.utc) - start
    assert datetime.timedelta(0) < passed < datetime.timedelta(minutes=10), start
    for table, columns in COLUMNS.items():
        group, dimension = file[table], DIMENSIONS[table]
        assert set(group) == {*columns, dimension}, set(group)
        assert group.attrs["long_name"]
        for name, (kind, unit) in columns.items():
            found = group[name]
            assert found.dtype.str.lstrip("<|") == kind, (name, found.dtype)
            assert found.attrs["units"] == unit and found.attrs["long_name"], name
            assert name == dimension or found.dims[0].label == dimension
            scale = found if name == dimension else found.dims[0][0]
            assert scale == group[dimension] and scale.shape == found.shape
            if kind != "O" and len(found):
                assert (found.compression, found.shuffle, found.fletcher32) == ("gzip", True, True)


def check_spans(spans):
    # How long ranks of the test wait for each other, and whether they write, depends on the machine.
    spans = spans[(spans["name"] != "wait") & (spans["name"] != "write_trace")]
    expected = []  # start times relative to the rank's first span: clock offsets are inexact
    for rank in range(RANKS):
        for time in range(TIMES if rank != 1 else 0):
            at = time * MS
            expected.append((rank, "file", "load", -1, -1, -1, at, 10, 0, 0, 0))
            expected.append((rank, "compute", "denoise_steps", 0, -1, -1, at + 80, 500, 9, 5, 0))
            expected.append((rank, "compute", "denoise_step", 0, 3, -1, at + 80, 50, 7, 1 << 40,
                             12))
            expected += [(rank, "exchange", "exchange", i, i, i, at + 680 + i, 0, 0, 0, 0)
                         for i in range(1, rank)]
    starts = {row["rank"]: row["start_ns"] for row in reversed(spans)}  # of each rank's first span
    assert max(starts.values()) - min(starts.values()) < 10 * MS, starts
    found = [tuple(row[f] if f in ("lane", "name") else
                   row[f].item() - (starts[row["rank"]] if f == "start_ns" else 0)
                   for f in spans.dtype.names) for row in spans]
    # While a job runs clocks are compared once; in the end drift is corrected by some ns.
    for one, other in zip(found, expected):
        near = abs(one[6] - other[6]) < MS // 2 and abs(one[7] - other[7]) <= 1
        assert one[:6] == other[:6] and one[8:] == other[8:] and near, \
            f"found {one}, expected {other}"
    assert len(found) == len(expected), (len(found), len(expected))


def check_messages(messages):
    assert messages["rank"].tolist() == [r for r in range(RANKS) for _ in range(4 * TIMES)]
    pairs = {"SEND": {}, "RECEIVE": {}}  # by direction: (sender, receiver, channel, number) -> row
    for row in messages:
        ends = (row["rank"], row["peer"])
        key = (ends if row["direction"] == "SEND" else ends[::-1]) + (row["channel"], row["number"])
        assert row["bytes"] == 8 and row["duration_ns"] >= 0 and row["clip"] == -1, row
        assert pairs[row["direction"]].setdefault(key, row) is row, key
    assert set(pairs["SEND"]) == set(pairs["RECEIVE"]), pairs
    channel, = set(messages["channel"])
    numbers = {}
    for sender, receiver, _, number in pairs["SEND"]:
        assert receiver == (sender + 1) % RANKS, (sender, receiver)
        numbers.setdefault(sender, []).append(number)
    for sender in range(RANKS):
        first = min(numbers[sender])
        assert sorted(numbers[sender]) == list(range(first, first + 2 * TIMES)), channel


def check_counters(counters, words):
    purposes = ("ACTIVATIONS", "WEIGHTS", "WORKSPACE", "EXCHANGE", "QUEUE")
    names = [f"{place}_{purpose}" for place in ("HOST", "DEVICE") for purpose in purposes]
    names += ["BYTES_SENT", "CLIPS_WAITING"]
    assert words.split() == names, words
    assert (counters["max"] >= counters["value"]).all()
    for rank in range(RANKS):
        rows = counters[counters["rank"] == rank]
        times = rows["time_ns"].tolist()
        assert times == sorted(times)
        value = {name: rows["value"][rows["counter"] == name].tolist() for name in names}
        assert value["CLIPS_WAITING"] == [5], value
        assert value["BYTES_SENT"][-1] == 16 * TIMES, value
    assert counters["rank"].tolist() == sorted(counters["rank"])


def check_ranks(ranks, memory):
    for rank, row in enumerate(ranks):
        host = f"nœud-{rank}"
        assert row.tolist()[:7] == (rank, host, "all", "cpu", 2, 4096, 8192), row
        assert row.tolist()[8:10] == (10 + rank, "attention: own kernels; products: a library")
        assert row.tolist()[11:] == (1 << 40, 1000 + rank, 1.5e12, 2.5e9), row
    assert ranks["clock_offset_ns"][0] == 0 and ranks["clock_drift_ppb"][0] == 0
    if not COMPLETE:
        assert not ranks["clock_drift_ppb"].any()
    purposes = ("activations", "weights", "workspace", "exchange", "queue")
    expected = [(rank, place, purpose, 100 * rank + 10 * i + at, 7 * at + i)
                for rank in range(RANKS) for at, place in enumerate(("host", "device"))
                for i, purpose in enumerate(purposes)]
    assert memory.tolist() == expected, memory


with h5py.File(PATH, "r") as file:
    check_structure(file)
    check_spans(table(file, "spans"))
    check_messages(table(file, "messages"))
    check_counters(table(file, "counters"), file["counters/counter"].attrs["flag_meanings"])
    check_ranks(table(file, "ranks"), table(file, "memory"))
    start = min(file["spans/start_ns"][()].min(), file["messages/start_ns"][()].min(),
                file["counters/time_ns"][()].min())
    assert start == 0, start
    rows = {name: len(table(file, name)) for name in COLUMNS}

for engine in ("h5netcdf", "netcdf4") if COMPLETE else ():
    for name, columns in COLUMNS.items():
        with xarray.open_dataset(PATH, group=name, engine=engine) as data:
            assert dict(data.sizes) == {DIMENSIONS[name]: rows[name]}, (engine, data)
            assert set(data.variables) == set(columns), (engine, data)
    with xarray.open_dataset(PATH, group="ranks", engine=engine) as data:
        assert data.host.sel(rank=RANKS - 1).item() == f"nœud-{RANKS - 1}", (engine, data)

"""Reads job.h5 as written by job_test.cpp, and the clips that it links to: with h5py, xarray
(h5netcdf and netCDF4) and h5dump."""

import subprocess
import sys

try:
    import h5netcdf  # noqa: F401
    import h5py
    import netCDF4  # noqa: F401
    import xarray
except ImportError as missing:
    sys.exit(f"read_job.py: {missing}; install python3-h5py python3-xarray python3-h5netcdf "
             "python3-netcdf4")

PATH = sys.argv[1]
ATTRIBUTES = {
    "format_version": 1,
    "title": "job of reelmesh",
    "program": "reelmesh",
    "version": "0.1.0",
    "git_revision": "abc1234",
    "options": "model.path = models/tiny\nprompt.text = two lines\n",
    "plan": "phased, 1 rank",
    "plan_json": '{"ranks": 1}',
    "tuned": '{"kept": 0}',
    "planned_again": ["rank 1 was short; sharded weights"],
    "start": "2026-01-31T12:00:00Z",
    "end": "2026-01-31T12:34:56Z",
    "predicted_seconds": 2000.5,
    "measured_seconds": 2096.25,
    "status": "failed",
    "hosts": ["node-1", "nœud-02"],
}
PROVENANCE = {
    "command": ["reelmesh", "run", "--prompt.text", "two\nlines"],
    "working_folder": "/home/me",
    "job_file": "",
    "options_given": ["prompt.text = two\nlines"],
    "git_revision": "abc1234",
    "git_changed": True,
    "compiler": "GNU 12.2.0",
    "compiler_flags": "-O3",
    "build_type": "Release",
    "libraries": ["HDF5 1.10.8", "fmt 9.1.0"],
    "model_path": "/home/me/models/tiny",
    "weights_hash": "0123",
    "products": "bfloat16 (AVX512_BF16)",
    "environment": ["OMP_NUM_THREADS=1"],
    "slurm": [],
}


def check(what, found, expected):
    found = list(found) if isinstance(expected, list) else found
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def check_attributes(item, expected):
    check(f"attributes of {item.name}", set(item.attrs), set(expected))
    for name, value in expected.items():
        check(name, item.attrs[name], value)


with h5py.File(PATH, "r") as file:
    check("names", set(file), {"clips", "provenance", "requests", "states", "videos"})
    checksum = file.attrs["checksum"]
    assert len(checksum) == 16 and int(checksum, 16), checksum
    check_attributes(file, ATTRIBUTES | {"checksum": checksum})
    check_attributes(file["provenance"], PROVENANCE)
    hosts = file["provenance/hosts"]
    check("columns", hosts.dtype.names, ("rank", "host", "processor", "vectors", "device", "driver"))
    check("hosts", [tuple(row) for row in hosts[()]],
          [(0, b"node-1", b"fast", b"AVX2", b"cpu", b""),
           (1, "nœud-02".encode(), b"", b"", b"H100", b"550.1")])

    states = file["states"]
    check("names of states", h5py.check_enum_dtype(states.dtype["state"]),
          {"MISSING": 0, "SAVED": 1, "FAILED": 2, "COMPLETE": 3, "PREVIEW": 4})
    check("states", [tuple(row) for row in states[()]],
          [(0, 3, b""), (1, 4, b""), (2, 2, "NaN in größe".encode())])
    check("requests", list(file["requests"].asstr()[()]),
          ['{"prompt":"one"}', '{"prompt":"zwei größe"}', '{"prompt":"three"}'])
    # Clip 2 has failed: nothing leads to the file of its name, which another job wrote.
    check("clips", list(file["clips"]), ["000000", "000001"])
    check("shape", file["clips/000001/video"].shape, (3, 4, 6, 3))
    link = file.get("clips/000001", getlink=True)
    check("link", (link.filename, link.path), ("clips/000001.h5", "/"))
    for table in (states, hosts):
        for name in ("long_names", "units"):
            check(f"{name} of {table.name}", len(table.attrs[name]), len(table.dtype.names))
    one = file["clips/000000/video"][()]

for engine in ("h5netcdf", "netcdf4"):
    with xarray.open_dataset(PATH, group="videos/3x4x6", engine=engine) as data:
        check("dimensions", dict(data.sizes),
              {"clip": 3, "frame": 3, "height": 4, "width": 6, "channel": 3})
        assert (data.video.values[:2] == one).all() and not data.video.values[2].any()
        check("prompts", data.prompt.values, ["one", "zwei größe", "three"])
        check("seeds", data.seed.values, [0, 1, 2**64 - 1])
        check("clips", data["clip"].values, [0, 1, 2])
        check("time", data.video.coords["time"].values, [0, 0.125, 0.25])

subprocess.run(["h5dump", "-H", PATH], check=True, stdout=subprocess.DEVNULL)

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
    "format_version": 2,
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
    "git_changed": 1,
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
    check("names", set(file), {"clip", "clips", "provenance", "requests", "states", "videos"})
    checksum = file.attrs["checksum"]
    assert len(checksum) == 16 and int(checksum, 16), checksum
    check_attributes(file, ATTRIBUTES | {"checksum": checksum})
    check_attributes(file["provenance"], PROVENANCE)
    hosts = file["provenance/hosts"]
    check("columns", set(hosts), {"rank", "host", "processor", "vectors", "device", "driver"})
    check("ranks", list(hosts["rank"]), [0, 1])
    for name, values in {"host": ["node-1", "nœud-02"], "processor": ["fast", ""],
                         "vectors": ["AVX2", ""], "device": ["cpu", "H100"], "driver": ["", "550.1"]}.items():
        check(name, list(hosts[name].asstr()[()]), values)

    states = file["states"]
    check("columns", set(states), {"clip", "state", "reason"})
    check("clips of states", list(states["clip"]), [0, 1, 2])
    check("states", list(states["state"]), [3, 4, 2])
    check("names of states", states["state"].attrs["flag_meanings"],
          "MISSING SAVED FAILED COMPLETE PREVIEW")
    check("reasons", list(states["reason"].asstr()[()]), ["", "", "NaN in größe"])
    check("requests", list(file["requests"].asstr()[()]),
          ['{"prompt":"one"}', '{"prompt":"zwei größe"}', '{"prompt":"three"}'])
    # Clip 2 has failed: nothing leads to the file of its name, which another job wrote.
    check("clips", list(file["clips"]), ["000000", "000001"])
    check("shape", file["clips/000001/video"].shape, (3, 4, 6, 3))
    link = file.get("clips/000001", getlink=True)
    check("link", (link.filename, link.path), ("clips/000001.h5", "/"))
    for table, dimension in ((states, "clip"), (hosts, "rank")):
        for name, column in table.items():
            assert column.attrs["long_name"] and "units" in column.attrs, column
            check(f"scale of {column.name}", table[dimension] if name == dimension
                  else column.dims[0][0], table[dimension])
    check("scale of /requests", file["requests"].dims[0][0], file["clip"])
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

    with xarray.open_dataset(PATH, group="states", engine=engine) as data:
        check("states", data.state.sel(clip=[2, 0]).values, [2, 3])
        check("reasons", data.reason.values, ["", "", "NaN in größe"])
    with xarray.open_dataset(PATH, group="provenance/hosts", engine=engine) as data:
        check("host", data.host.sel(rank=1).item(), "nœud-02")
    with xarray.open_dataset(PATH, engine=engine) as data:
        check("requests", data.requests.sel(clip=1).item(), '{"prompt":"zwei größe"}')

subprocess.run(["h5dump", "-H", PATH], check=True, stdout=subprocess.DEVNULL)

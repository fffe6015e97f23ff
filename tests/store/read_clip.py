"""Reads the clip written by clip_test.cpp with h5py, xarray (h5netcdf and netCDF4) and h5dump.
Checks the names, types, dimensions, values and attributes that users' scripts rely on."""

import subprocess
import sys

try:
    import h5py
    import numpy
    import xarray
    import h5netcdf  # noqa: F401  the engines that xarray uses below
    import netCDF4  # noqa: F401
except ImportError as missing:
    sys.exit(f"read_clip.py: {missing}; install python3-h5py python3-xarray python3-h5netcdf "
             "python3-netcdf4")

PATH = sys.argv[1]
LATENT = ("latent_frame", "latent_channel", "latent_height", "latent_width")
EXPECTED = {  # name: type, shape, dimensions
    "time": ("float64", (5,), ("frame",)),
    "video": ("uint8", (5, 18, 26, 3), ("frame", "height", "width", "channel")),
    "latents": ("float32", (2, 4, 9, 13), LATENT),
    "prompt_embeds": ("float32", (11, 6), ("token", "embedding")),
    "negative_prompt_embeds": ("float32", (11, 6), ("token", "embedding")),
    "token_ids": ("int32", (11,), ("token",)),
}
ATTRIBUTES = {
    "Conventions": "CF-1.8",
    "format_version": 1,
    "title": "clip 3 of reelmesh",
    "prompt": "a panda — «竹» in the wind",
    "negative_prompt": "",
    "seed": 18446744073709551615,
    "steps": 50,
    "guidance": 6.5,
    "fps": 8.0,
    "model": "models/tiny",
    "scheduler": "ddim",
    "dtype": "float32",
    "fingerprint": "model 0123456789abcdef, backend cpu",
    "layout": "height",
    "wall_seconds": 1.25,
}


def same(what, found, expected):
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def values(name, shape):
    if name == "time":
        return numpy.arange(5) / 8
    position = numpy.arange(numpy.prod(shape), dtype=numpy.int64).reshape(shape)
    if name == "video":
        return ((position * 31 + position // 97) % 251).astype("uint8")
    if name == "token_ids":
        return numpy.array([5, 0, -1, 32000, 1, 2, 3, 4, 5, 6, 7], "int32")
    whole = ((position * 7919 + 13) % 1000003).astype("float32")
    return whole / numpy.float32(257)


with h5py.File(PATH, "r") as file:
    dimensions = {d for _, _, dims in EXPECTED.values() for d in dims}
    same("names", set(file), set(EXPECTED) | dimensions)
    same("attributes", set(file.attrs), set(ATTRIBUTES))
    for name, expected in ATTRIBUTES.items():
        same(name, file.attrs[name], expected)
    same("type of seed", file.attrs["seed"].dtype, numpy.dtype("uint64"))
    for name, (dtype, shape, dims) in EXPECTED.items():
        data = file[name]
        same(name, (data.dtype, data.shape), (numpy.dtype(dtype), shape))
        same(f"labels of {name}", tuple(d.label for d in data.dims), dims)
        same(f"scales of {name}", tuple(d[0].name for d in data.dims), tuple("/" + d for d in dims))
        assert (data[...] == values(name, shape)).all(), f"{name} has other values"
    same("chunk of video", file["video"].chunks, (1, 18, 26, 3))
    same("compression of video", file["video"].compression, "gzip")
    for name in set(EXPECTED) | dimensions:
        assert file[name].attrs["long_name"], f"{name} has no long_name"
        same(f"units of {name}", file[name].attrs["units"], "s" if name == "time" else "1")

for engine in ("h5netcdf", "netcdf4"):
    with xarray.open_dataset(PATH, engine=engine) as data:
        same(f"variables with {engine}", set(data.data_vars), set(EXPECTED) - {"time"})
        same("coordinates of video", set(data.video.coords),
             {"time", "frame", "height", "width", "channel"})
        for name, (dtype, shape, dims) in EXPECTED.items():
            same(name, (data[name].dtype, data[name].dims), (numpy.dtype(dtype), dims))
            assert (data[name].values == values(name, shape)).all(), f"{name} has other values"
        same("coordinate frame", list(data["frame"].values), [0, 1, 2, 3, 4])
        for name, expected in ATTRIBUTES.items():
            same(f"{name} with {engine}", data.attrs[name], expected)

header = subprocess.run(["h5dump", "-H", PATH], check=True, capture_output=True, text=True).stdout
for name in [*EXPECTED, *dimensions]:
    assert f'DATASET "{name}"' in header, f"h5dump does not show {name}"
for name in ATTRIBUTES:
    assert f'ATTRIBUTE "{name}"' in header, f"h5dump does not show attribute {name}"

"""Reads the sample written by sample_cache_test.cpp with h5py and xarray."""

import sys

try:
    import h5py
    import numpy
    import xarray
    import h5netcdf  # noqa: F401  the engine that xarray uses below
except ImportError as missing:
    sys.exit(f"read_sample.py: {missing}; install python3-h5py python3-xarray python3-h5netcdf")

PATH = sys.argv[1]
LATENT = ("latent_frame", "latent_channel", "latent_height", "latent_width")
EXPECTED = {  # name: shape, dimensions, factor
    "latent_mean": ((3, 4, 6, 7), LATENT, 1),
    "latent_std": ((3, 4, 6, 7), LATENT, 0.5),
    "prompt_embeds": ((11, 6), ("token", "embedding"), 1),
}
ATTRIBUTES = {
    "Conventions": "CF-1.8",
    "file": "clips/a.mp4",
    "fingerprint": "vae 1, 9 x 48 x 56",
    "format_version": 1,
    "hash": "0123456789abcdef0123456789abcdef",
    "prompt": "a panda — «竹»",
    "text_fingerprint": "t5 2",
    "title": "encoded training sample of reelmesh",
}


def same(what, found, expected):
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def values(shape, factor):
    position = numpy.arange(numpy.prod(shape), dtype=numpy.int64).reshape(shape)
    whole = ((position * 7919 + 13) % 1000003).astype("float32")
    return whole / numpy.float32(257) * numpy.float32(factor)


with h5py.File(PATH, "r") as file:
    dimensions = {d for _, dims, _ in EXPECTED.values() for d in dims}
    same("names", set(file), set(EXPECTED) | dimensions)
    same("attributes", set(file.attrs), set(ATTRIBUTES) | {"checksum"})
    for name, expected in ATTRIBUTES.items():
        same(name, file.attrs[name], expected)
    for name, (shape, dims, factor) in EXPECTED.items():
        data = file[name]
        same(name, (data.dtype, data.shape), (numpy.dtype("float32"), shape))
        same(f"labels of {name}", tuple(d.label for d in data.dims), dims)
        assert (data[...] == values(shape, factor)).all(), f"{name} has other values"
        assert data.attrs["long_name"], f"{name} has no long_name"

with xarray.open_dataset(PATH, engine="h5netcdf") as sample:
    for name, (shape, dims, factor) in EXPECTED.items():
        same(f"dimensions of {name}", sample[name].dims, dims)
        assert (sample[name].values == values(shape, factor)).all(), f"{name} has other values"

"""Reads the file written by metrics_test.cpp with h5py and xarray."""

import sys

try:
    import h5py
    import numpy
    import xarray
    import h5netcdf  # noqa: F401  the engine that xarray uses below
except ImportError as missing:
    sys.exit(f"read_metrics.py: {missing}; install python3-h5py python3-xarray python3-h5netcdf")

PATH = sys.argv[1]
STEPS = numpy.arange(3.0)
EXPECTED = {
    "loss": (1 / (STEPS + 3), "1"),
    "gradient_norm": (STEPS, "1"),
    "learning_rate": (1e-4 * STEPS, "1"),
    "seconds": (STEPS / 7, "s"),
}

metrics = xarray.open_dataset(PATH, engine="h5netcdf")
assert set(metrics.data_vars) == set(EXPECTED), metrics
assert metrics.step.values.tolist() == [0, 1, 2], metrics.step
for name, (values, units) in EXPECTED.items():
    found = metrics[name]
    assert found.dims == ("step",) and found.dtype == "float64", found
    assert numpy.array_equal(found.values, values), found
    assert found.attrs["units"] == units and found.attrs["long_name"], found
with h5py.File(PATH) as file:
    assert file.attrs["format_version"] == 1
    assert file.attrs["title"] == "3 steps of a training by reelmesh", dict(file.attrs)

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
NUMBERS = numpy.arange(9).reshape(3, 3)  # of samples, three in each step
AFTER = numpy.array([0.0, 2.0])  # validations
OTHERS = {
    "sample": (("step", "place"), "int32", NUMBERS % 7),
    "timestep": (("step", "place"), "int32", 999 - NUMBERS),
    "sample_loss": (("step", "place"), "float64", 1 / (NUMBERS + 2)),
    "validation_loss": (("validation_step", "validation_timestep"), "float64",
                        numpy.stack([AFTER, AFTER / 3, AFTER / 7, -AFTER], 1)),
}

metrics = xarray.open_dataset(PATH, engine="h5netcdf")
assert set(metrics.data_vars) == {*EXPECTED, *OTHERS}, metrics
assert metrics.step.values.tolist() == [0, 1, 2], metrics.step
assert metrics.place.values.tolist() == [0, 1, 2], metrics.place
assert metrics.validation_step.values.tolist() == [0, 2], metrics.validation_step
assert metrics.validation_timestep.values.tolist() == [125, 375, 625, 875], metrics
for name, (values, units) in EXPECTED.items():
    found = metrics[name]
    assert found.dims == ("step",) and found.dtype == "float64", found
    assert numpy.array_equal(found.values, values), found
    assert found.attrs["units"] == units and found.attrs["long_name"], found
for name, (dims, dtype, values) in OTHERS.items():
    found = metrics[name]
    assert found.dims == dims and found.dtype == dtype, found
    assert numpy.array_equal(found.values, values), found
    assert found.attrs["units"] == "1" and found.attrs["long_name"], found
assert metrics.timestep.attrs["timesteps"] == 500, metrics.timestep
assert metrics.validation_loss.attrs["clips"] == "four clips", metrics.validation_loss
with h5py.File(PATH) as file:
    assert file.attrs["format_version"] == 1
    assert file.attrs["title"] == "3 steps of a training by reelmesh", dict(file.attrs)

#!/usr/bin/python3
"""Tests of tensorboard_training: TensorBoard's own reader finds the values of a training.

Without the package tensorboard only its absence is tested, and the status is 77 (skipped), as without
h5py. To run all of it, with a virtual environment that has tensorboard and sees Debian's packages:

    python3 -m venv --system-site-packages ENV && ENV/bin/pip install tensorboard
    ENV/bin/python tests/tools/tensorboard_test.py
"""
import importlib.util
import shutil
import sys
import unittest

try:
    import h5py  # noqa: F401
    import numpy as np
except ImportError as missing:
    print(f"tensorboard_test: passed over: {missing}")
    sys.exit(77)

import results_support as support
from tool_support import ToolTest

INSTALLED = importlib.util.find_spec("tensorboard") is not None
EVENTS = "events.out.tfevents.reelmesh"


class Absent(ToolTest):
    tool = "tensorboard_training"

    def setUp(self):
        super().setUp()
        if INSTALLED:
            self.skipTest("tensorboard is installed")

    def test_says_that_the_package_is_missing(self):
        support.write_training(self.folder / "out", 4, trace=False)
        in_environment = sys.prefix != sys.base_prefix
        self.refused(69, "has no tensorboard; " + (
            f"{sys.executable} -m pip install tensorboard" if in_environment else
            f"{sys.executable} -m venv --system-site-packages ENV && ENV/bin/pip install tensorboard, "
            "and run it as ENV/bin/python "), self.folder / "out")
        self.assertFalse((self.folder / "out/tensorboard").exists())


class Tensorboard(ToolTest):
    tool = "tensorboard_training"

    def setUp(self):
        super().setUp()
        if not INSTALLED:
            self.skipTest(f"{sys.executable} has no tensorboard")
        self.out = self.folder / "out"
        support.write_training(self.out, 4, trace=False)

    def scalars(self, logdir=None):
        """tag → [(step, value, seconds since the epoch)]"""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray
        logdir = logdir or self.out / "tensorboard"
        self.assertEqual([path.name for path in logdir.iterdir()], [EVENTS])
        read = EventAccumulator(str(logdir), size_guidance={"tensors": 0})
        read.Reload()
        return {tag: [(one.step, float(make_ndarray(one.tensor_proto)), one.wall_time)
                      for one in read.Tensors(tag)] for tag in read.Tags()["tensors"]}

    def points(self, tag):
        return [one[:2] for one in self.scalars()[tag]]

    def test_the_values_are_those_of_the_training(self):
        loss = [0.5, 0.25, np.nan, 2.0]  # a row is lost
        seconds = [1.0, 2.0, np.nan, 4.0]
        timestep = [[0, 999], [249, 250], [-1, -1], [100, 200]]
        support.write_metrics(
            self.out, loss, seconds=seconds,
            samples=(np.zeros((4, 2)), timestep, [[1, 2], [3, 4], [np.nan, np.nan], [5, 8]]),
            validations=([0, 4], [125, 375], [[8, 4], [2, 1]]))
        said = self.expect(0, self.out / "job.h5")
        self.assertEqual(said, f"tensorboard_training: {self.out}/tensorboard: 25 values of 4 "
                               "steps\n")
        found = self.scalars()
        self.assertEqual(set(found), {
            "train/loss", "train/gradient_norm", "train/learning_rate", "train/seconds",
            "loss_by_timestep/0-249", "loss_by_timestep/250-499", "loss_by_timestep/750-999",
            "validation/loss", "validation/timestep_125", "validation/timestep_375"})
        self.assertEqual(self.points("train/loss"), [(1, 0.5), (2, 0.25), (4, 2.0)])
        self.assertEqual(self.points("train/gradient_norm"), [(n, 0.5) for n in (1, 2, 3, 4)])
        self.assertEqual(self.points("loss_by_timestep/0-249"), [(1, 1), (2, 3), (4, 6.5)])
        self.assertEqual(self.points("loss_by_timestep/250-499"), [(2, 4)])
        self.assertEqual(self.points("loss_by_timestep/750-999"), [(1, 2)])
        self.assertEqual(self.points("validation/loss"), [(0, 6), (4, 1.5)])
        self.assertEqual(self.points("validation/timestep_375"), [(0, 4), (4, 1)])
        times = [one[2] for one in found["train/seconds"]]
        np.testing.assert_allclose(np.diff(times), [2, 4])
        self.assertEqual(found["validation/loss"][0][2], times[0] - 1)

    def test_a_later_call_replaces_the_file(self):
        logdir = self.folder / "new" / "logs"
        self.expect(0, self.out, logdir)
        self.assertEqual(len(self.scalars(logdir)["train/loss"]), 4)
        support.write_training(self.out, 6, trace=False)
        self.expect(0, self.out, logdir)
        self.assertEqual(len(self.scalars(logdir)["train/loss"]), 6)

    def test_metrics_of_an_earlier_version(self):
        support.write_metrics(self.out, np.ones(3))
        self.expect(0, self.out)
        self.assertEqual(len(self.scalars()), 4)

    def test_what_cannot_be_converted(self):
        self.refused(66, "not found", self.folder / "none")
        self.refused(64, "unrecognized", self.out, self.folder / "a", self.folder / "b")
        (self.folder / "file").write_text("a file")
        self.refused(73, f"{self.folder}/file", self.out, self.folder / "file")
        (self.out / "metrics.h5").write_bytes(b"not HDF5")
        self.refused(65, "metrics.h5: not a readable HDF5 file", self.out)
        (self.out / "metrics.h5").unlink()
        self.refused(66, "metrics.h5: not found", self.out)
        job = self.folder / "job"
        support.write_job(job, 1)
        for path in (job, job / "clips/000000.h5"):
            self.refused(66, "expected the output folder of a training", path)
        self.assertFalse((self.out / "tensorboard").exists())
        shutil.rmtree(self.out)


if __name__ == "__main__":
    result = unittest.main(verbosity=2, exit=False).result
    if not INSTALLED and result.wasSuccessful():
        print(f"tensorboard_test: passed over: {sys.executable} has no tensorboard")
        sys.exit(77)
    sys.exit(not result.wasSuccessful())

#!/usr/bin/python3
"""Tests of tools/reelmesh-compare.

Ends with status 77 (skipped) if Debian's packages for it are not installed.
"""
import json
import math
import shutil
import sys
import unittest

try:
    import h5py
    import numpy as np
    from PIL import Image
except ImportError as missing:
    print(f"compare_runs_test: passed over: {missing}")
    sys.exit(77)

import results_support
from tool_support import ToolTest

from reelmesh_results import quality


def frame(height, width, shift):
    """A frame that other programs can make alike: waves in integers."""
    y, x, channel = np.mgrid[:height, :width, :3]
    return ((x * x * (3 + channel) + y * 7 + shift * (x * y % 23)) % 256).astype(np.uint8)


class Quality(unittest.TestCase):
    def test_figures_of_scikit_image(self):
        """structural_similarity(luma a, luma b, gaussian_weights=True, sigma=1.5, data_range=255,
        use_sample_covariance=False) and peak_signal_noise_ratio(a, b) of scikit-image 0.26.0."""
        for (height, width), shift, ssim, psnr in FIGURES:
            a, b = frame(height, width, 0), frame(height, width, shift)
            self.assertAlmostEqual(quality.ssim(a, b), ssim, places=12)
            mean_square = ((a.astype(float) - b) ** 2).mean()
            self.assertAlmostEqual(quality.psnr(mean_square), psnr, places=9)

    def test_limits(self):
        a = frame(16, 16, 0)
        self.assertEqual(quality.psnr(0), math.inf)
        self.assertAlmostEqual(quality.ssim(a, a), 1, places=12)
        for size in (1, 2, 5, 10):  # smaller than the window
            small = frame(size, size, 0)
            self.assertAlmostEqual(quality.ssim(small, small), 1, places=12)
            self.assertLess(quality.ssim(small, 255 - small), 1)


# (height, width), shift, SSIM, PSNR
FIGURES = [
    ((64, 64), 1, 0.7508660644169128, 14.115736358422268),
    ((64, 64), 2, 0.5506505361112759, 11.4237402460306),
    ((64, 64), 9, -0.008595116927056638, 7.6307635309867905),
    ((33, 77), 1, 0.7486588413713251, 14.484884414096067),
    ((33, 77), 2, 0.57338073202708, 11.705040660963373),
    ((33, 77), 9, 0.002775812717162157, 7.6916257079296795),
    ((11, 40), 1, 0.7818143577285348, 15.20534990524591),
    ((11, 40), 2, 0.6541648779593496, 12.566506611543552),
    ((11, 40), 9, -0.044326249534277266, 8.089958092413138)]


class Compare(ToolTest):
    tool = "reelmesh-compare"

    def setUp(self):
        super().setUp()
        self.a, self.b = self.folder / "a", self.folder / "b"
        results_support.write_job(self.a, clips=3, spans=100)
        shutil.copytree(self.a, self.b)

    def change(self, number, dataset, place, value):
        """Sets a value of B."""
        with h5py.File(self.b / f"clips/{number:06}.h5", "r+") as file:
            file[dataset][place] = value

    def json(self, status, *arguments):
        return json.loads(self.expect(status, *(arguments or (self.a, self.b)), "--json"))

    # -- the same ---------------------------------------------------------------------------------

    def test_the_same_bits(self):
        self.assertIn("3 clips: the same bits", self.expect(0, self.a, self.b))
        self.assertIn("the same bits", self.expect(0, self.a / "job.h5", self.b / "job.h5"))
        found = self.json(0)
        self.assertEqual((found["result"], found["same"], found["first"], found["clips"]),
                         ("same", 3, None, []))

    def test_what_does_not_count(self):
        with h5py.File(self.b / "clips/000000.h5", "r+") as file:
            file.attrs.update({"layout": "replica 0: ranks 0-7", "wall_seconds": 99.0,
                               "model": "/elsewhere"})
        self.assertEqual(self.json(0)["notes"], [])

    def test_requests_are_noted(self):
        for number in (0, 1):
            with h5py.File(self.b / f"clips/{number:06}.h5", "r+") as file:
                file.attrs["fingerprint"] = "model fedcba9876543210"
        with h5py.File(self.b / "clips/000002.h5", "r+") as file:
            file.attrs["seed"] = np.uint64(7)
        self.assertEqual(self.json(0)["notes"], [
            "fingerprint differs in clip 0 and 1 more: model 0123456789abcdef in A, model "
            "fedcba9876543210 in B", "seed differs in clip 2: 44 in A, 7 in B"])

    def test_texts_of_earlier_files_are_the_same_texts(self):
        with h5py.File(self.b / "clips/000000.h5", "r+") as file:
            file.attrs["dtype"] = np.bytes_(b"float32")
        self.assertEqual(self.json(0)["notes"], [])

    def test_nan_with_the_same_bits_is_the_same(self):
        for folder in (self.a, self.b):
            with h5py.File(folder / "clips/000001.h5", "r+") as file:
                file["latents"][0, 0, 0, 0] = np.nan
        self.json(0)

    # -- different --------------------------------------------------------------------------------

    def test_one_bit(self):
        """The tool names the place where it was planted, in each dataset."""
        places = {"token_ids": (5,), "latents": (2, 3, 4, 5), "video": (7, 12, 63, 2)}
        for dataset, place in places.items():
            with self.subTest(dataset):
                with h5py.File(self.b / "clips/000001.h5", "r+") as file:
                    before = file[dataset][place]
                    changed = np.array([before])
                    changed.view(f"u{before.itemsize}")[0] ^= 1
                    file[dataset][place] = changed[0]
                found = self.json(1)
                first = found["first"]
                self.assertEqual((first["clip"], first["dataset"]), ("clip 1", dataset))
                self.assertEqual(tuple(list(first.values())[2:-2]), place)
                array = found["clips"][0]["datasets"][dataset]
                self.assertEqual(array["differing"], 1)
                self.change(1, dataset, place, before)
        self.json(0)

    def test_the_first_is_that_of_the_computation(self):
        self.change(2, "latents", (0, 0, 0, 0), 9)
        self.change(1, "video", (3, 1, 2, 0), 9)
        self.change(1, "latents", (1, 0, 2, 0), 9)
        first = self.json(1)["first"]
        self.assertEqual([first[key] for key in ("clip", "dataset", "frame", "channel", "row",
                                                 "column")], ["clip 1", "latents", 1, 0, 2, 0])

    def test_figures(self):
        with h5py.File(self.a / "clips/000000.h5") as file:
            video, latents = file["video"][()], file["latents"][()]
        changed = video.copy()
        changed[2] ^= 8
        changed[5, :10] ^= 64
        self.change(0, "video", (), changed)
        self.change(0, "latents", (), latents * np.float32(1.5))
        found = self.json(1)["clips"][0]["datasets"]
        difference = np.abs(video.astype(float) - changed)
        of_video = found["video"]
        self.assertEqual((of_video["differing"], of_video["largest"], of_video["worst_frame"]),
                         (64 * 64 * 3 + 10 * 64 * 3, 64, 5))
        self.assertAlmostEqual(of_video["mean"], difference.mean())
        self.assertAlmostEqual(of_video["psnr"], quality.psnr((difference ** 2).mean()))
        self.assertAlmostEqual(of_video["ssim"], np.mean([quality.ssim(a, b)
                                                          for a, b in zip(video, changed)]))
        self.assertAlmostEqual(found["latents"]["relative"], 0.5, places=6)
        self.assertAlmostEqual(found["latents"]["largest"], np.abs(latents).max() / 2, places=5)
        text = self.expect(1, self.a, self.b)
        self.assertIn("first difference: clip 0, latents, frame 0, channel 0, row 0, column 0:",
                      text)
        self.assertIn(f"{of_video['psnr']:.2f} dB", text)

    def test_sign_of_zero_nan_and_infinity(self):
        with h5py.File(self.a / "clips/000000.h5", "r+") as file:
            file["latents"][0, 0, 0, :3] = (0.0, 1.0, np.nan)
        self.change(0, "latents", (0, 0, 0, slice(0, 3)), (-0.0, 1.0, np.nan))
        array = self.json(1)["clips"][0]["datasets"]["latents"]
        self.assertEqual((array["differing"], array["largest"]), (1, 0))
        self.change(0, "latents", (0, 0, 0, 1), np.nan)
        array = self.json(1)["clips"][0]["datasets"]["latents"]
        self.assertEqual((array["differing"], array["largest"]), (2, "inf"))

    def test_two_clips_and_one_clip_of_two_jobs(self):
        found = self.json(1, self.a / "clips/000000.h5", self.b / "clips/000001.h5")
        self.assertEqual(found["first"]["clip"], "000000 and 000001")
        self.assertIn("prompt differs in 000000 and 000001", found["notes"][0])
        self.change(1, "video", (0, 0, 0, 0), 9)
        self.json(0, self.a, self.b, "--clip", "2")
        self.assertEqual(self.json(1, self.a, self.b, "--clip", "1")["compared"], 1)
        self.json(1, self.a / "clips/000001.h5", self.b, "--clip", "1")

    def test_many_clips_are_summarised(self):
        for number in range(40):
            video = results_support.moving_square(2, 16, 16, number)
            results_support.write_clip(self.a, number, video)
            results_support.write_clip(self.b, number, video ^ np.uint8(1 + number))
        for folder in (self.a, self.b):
            results_support.write_index(folder, [{}] * 40)
        lines = self.expect(1, self.a, self.b, "--worst", "5").splitlines()
        self.assertIn("40 clips: different", lines)
        self.assertRegex(lines[-1],
                         r"^and 35 more: PSNR \d+\.\d\d to \d+\.\d\d dB, SSIM 0\.\d+ to ")
        self.assertEqual(len(self.json(1)["clips"]), 40)

    # -- the picture ------------------------------------------------------------------------------

    def test_the_picture_shows_the_worst_frame_and_its_difference(self):
        self.change(0, "video", (8, 0, 0, 0), 1)
        self.change(2, "video", (4, slice(0, 32), slice(0, 32)), (40, 60, 90))
        with h5py.File(self.a / "clips/000002.h5") as file:
            expected = file["video"][4]
        with h5py.File(self.b / "clips/000002.h5") as file:
            other = file["video"][4]
        difference = np.abs(expected.astype(int) - other)
        factor = 2 ** int(math.log2(255 // difference.max()))
        picture = self.folder / "new/difference.png"
        self.expect(1, self.a, self.b, "--picture", picture)
        pixels = np.asarray(Image.open(picture).convert("RGB"))
        for i, panel in enumerate((expected, other, difference * factor)):
            x = 18 + i * (256 + 4)
            shown = pixels[18 + 26:18 + 26 + 256:4, x:x + 256:4]
            self.assertEqual(np.abs(shown.astype(int) - panel).max(), 0, i)

    def test_no_picture_of_the_same(self):
        done = self.call(self.a, self.b, "--picture", self.folder / "none.png")
        self.assertEqual(done.returncode, 0)
        self.assertIn("no picture is made: no video differs", done.stderr)
        self.assertFalse((self.folder / "none.png").exists())

    # -- not comparable ---------------------------------------------------------------------------

    def test_other_shapes(self):
        results_support.write_clip(self.b, 1, results_support.moving_square(9, 32, 64, 1))
        found = self.json(2)
        self.assertEqual(found["not_comparable"], [
            "clip 1: latents is float32 [3, 4, 8, 8] in A and float32 [3, 4, 4, 8] in B",
            "clip 1: video is uint8 [9, 64, 64, 3] in A and uint8 [9, 32, 64, 3] in B"])
        self.assertEqual((found["result"], found["same"]), ("not comparable", 2))

    def test_clips_that_one_lacks(self):
        (self.b / "clips/000001.h5").unlink()
        self.assertIn("not comparable: B has no clip 1\n2 clips: the same bits",
                      self.expect(2, self.a, self.b))
        self.assertIn("not comparable: A has no clip 1", self.expect(2, self.b, self.a))
        (self.a / "clips/000001.h5").unlink()
        self.assertEqual(self.json(0)["notes"],
                         ["neither has clip 1: failed, or not made yet"])
        results_support.write_index(self.b, [{}] * 5)
        self.assertIn("A has 3 clips and B 5", self.json(2)["not_comparable"][0])

    def test_files_of_other_jobs_are_not_compared(self):
        results_support.write_index(self.b, [{}] * 2, {0: ("failed", "NaN")}, status="failed")
        self.assertEqual(self.json(2)["not_comparable"],
                         ["A has 3 clips and B 2", "B has no clip 0, 2"])
        self.refused(66, "no clip 0; complete are 1", self.a, self.b, "--clip", "0")

    def test_datasets_that_one_lacks(self):
        with h5py.File(self.b / "clips/000000.h5", "r+") as file:
            del file["video"]
        self.assertEqual(self.json(0)["notes"], ["only A or only B has video of clip 0"])
        with h5py.File(self.b / "clips/000000.h5", "r+") as file:
            del file["latents"], file["token_ids"]
            file["prompt_embeds"] = np.zeros((2, 3), np.float32)
        self.assertEqual(self.json(2)["not_comparable"], ["clip 0: no dataset is in both"])

    # -- wrong use --------------------------------------------------------------------------------

    def test_wrong_options(self):
        clip = self.a / "clips/000000.h5"
        self.refused(64, "--clip", self.a, self.b, "--clip", "x")
        self.refused(64, "expected two jobs, two clips, or --clip N", clip, self.b)
        self.refused(64, "are clips", clip, clip, "--clip", "0")
        self.refused(64, ".png", self.a, self.b, "--picture", "a.jpg")
        self.refused(64, "required: B", self.a)

    def test_a_damaged_clip(self):
        path = self.b / "clips/000001.h5"
        path.write_bytes(path.read_bytes()[:700])
        self.refused(65, f"{path}: not a readable HDF5 file", self.a, self.b)
        self.assertEqual(json.loads(self.call(self.a, self.b, "--json").stdout)["result"],
                         "damaged")


if __name__ == "__main__":
    unittest.main(verbosity=2)

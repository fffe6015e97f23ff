#!/usr/bin/python3
"""Tests of tools/reelmesh-view: reads back its PNGs and MP4s; checks its error messages.

Ends with status 77 (skipped) if Debian's packages for it are not installed. Without ffmpeg the
tests of MP4s are skipped.
"""
import contextlib
import fcntl
import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest
from unittest import mock

try:
    import h5py
    import numpy as np
    from PIL import Image, ImageFont
except ImportError as missing:
    print(f"view_test: passed over: {missing}")
    sys.exit(77)

import results_support
from tool_support import TOOLS, ToolTest

from reelmesh_results import clips, errors, sheet, watch
from reelmesh_results.viewer import Viewer

TOOL = TOOLS / "reelmesh-view"
FFMPEG = shutil.which("ffmpeg") and shutil.which("ffprobe")
needs_ffmpeg = unittest.skipUnless(FFMPEG, "ffmpeg is not installed")
COLOURS = [(220, 35, 40), (35, 165, 60), (40, 75, 225), (245, 220, 45)]  # left half, by frame
RIGHT = (15, 15, 18)
# A program that watches a job without making pictures, and ends with the status of the tool.
WATCHER = f"""
import pathlib, sys
sys.path.insert(0, {str(TOOLS)!r})
from reelmesh_results import watch
sys.exit(watch.follow(pathlib.Path(sys.argv[1]), lambda count: None, pause=0.05, patience=0.2))
"""


def clip_of(frames, height, width):
    """Left half in a colour that changes from frame to frame, right half dark."""
    video = np.empty((frames, height, width, 3), np.uint8)
    video[:] = RIGHT
    for t in range(frames):
        video[t, :, :width // 2] = COLOURS[t % len(COLOURS)]
    return video


class View(ToolTest):
    tool = "reelmesh-view"

    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def add(self, number, video, prompt="a red square over a black field", **attributes):
        (self.out / "clips").mkdir(parents=True, exist_ok=True)
        with h5py.File(self.out / "clips" / f"{number:06}.h5", "w") as file:
            if video is not None:
                file["video"] = video
            # A fixed-length string, as in earlier files.
            file.attrs.update({"prompt": np.bytes_(prompt.encode()), "fps": 8.0, "seed": 42,
                               **attributes})

    def index(self, clips):
        with h5py.File(self.out / "job.h5", "w") as file:
            file.attrs["program"] = "reelmesh"
            file.require_group("clips")
            for number in range(clips):
                name = f"{number:06}"
                file[f"clips/{name}"] = h5py.ExternalLink(f"clips/{name}.h5", "/")

    def colours_across(self, path, y):
        """Colours along row y of an image: one for each run of equal pixels at least 20 wide."""
        line = np.asarray(Image.open(path).convert("RGB"))[y]
        runs = np.split(line, np.flatnonzero((np.diff(line.astype(int), axis=0) != 0).any(1)) + 1)
        return [tuple(int(v) for v in run[0]) for run in runs if len(run) >= 20]

    # -- pictures ---------------------------------------------------------------------------------

    def test_a_sheet_has_the_frames_side_by_side_in_their_own_colours(self):
        self.add(0, clip_of(3, 64, 64))
        self.index(1)
        self.expect(0, self.out, "--no-mp4")
        across = self.colours_across(self.out / "view/000000.png", 60)
        self.assertEqual([c for c in across if c != (255, 255, 255)],
                         [COLOURS[0], RIGHT, COLOURS[1], RIGHT, COLOURS[2], RIGHT])

    def test_frames_are_picked_evenly_with_the_first_and_the_last(self):
        video = np.zeros((49, 64, 64, 3), np.uint8)
        video[..., 0] = 5 * np.arange(49)[:, None, None]
        self.add(0, video)
        self.expect(0, self.out, "--no-mp4")
        across = self.colours_across(self.out / "view/000000.png", 60)
        self.assertEqual([c[0] for c in across if c != (255, 255, 255)],
                         [5 * t for t in range(0, 49, 6)])
        self.expect(0, self.out, "--no-mp4", "--frames", "2")
        across = self.colours_across(self.out / "view/000000.png", 60)
        self.assertEqual([c[0] for c in across if c != (255, 255, 255)], [0, 240])

    def test_the_font_is_matplotlibs_where_the_system_has_none(self):
        own = ImageFont.truetype

        def found_by_path_alone(name, size):
            if "/" not in name:
                raise OSError("cannot open resource")
            return own(name, size)
        with mock.patch.object(ImageFont, "truetype", found_by_path_alone):
            self.assertEqual(sheet.font(12).getname(), ("DejaVu Sans", "Book"))
            with mock.patch.dict(sys.modules, matplotlib=None), \
                    self.assertRaisesRegex(errors.Error, "fonts-dejavu-core") as ended:
                sheet.font(12)
        self.assertEqual(ended.exception.status, 69)

    def test_the_prompt_stands_below_the_frames(self):
        self.add(0, clip_of(2, 64, 64), prompt="short")
        self.add(1, clip_of(2, 64, 64), prompt="long words " * 40)
        self.expect(0, self.out, "--no-mp4")
        pictures = [np.asarray(Image.open(self.out / f"view/00000{i}.png")) for i in (0, 1)]
        inks = [(picture[18 + 194 + 20:].max(2) < 100).sum() for picture in pictures]
        self.assertGreater(inks[0], 50)
        self.assertGreater(inks[1], 20 * inks[0])  # the long text is complete, in several lines
        self.assertGreater(pictures[1].shape[0], pictures[0].shape[0] + 60)

    def test_the_sheet_of_the_job_names_every_clip(self):
        path = self.folder / "000017.h5"
        results_support.write_job(self.folder / "job", clips=1, spans=100)
        shutil.copy(self.folder / "job/clips/000000.h5", path)
        with clips.Clip(path) as clip, mock.patch.object(sheet, "_captioned") as drawn:
            sheet.cell(clip, sheet.strip(clip, 3), 2)
        self.assertEqual([text for text, *_ in drawn.call_args.args[1]],
                         ["a square moves to the right, 0", "clip 17 · seed 42"])

    def test_the_sheet_of_the_job_shows_every_clip(self):
        for number in range(20):
            self.add(number, np.full((2, 64, 64, 3), 3 + 12 * number, np.uint8))
        self.index(20)
        self.assertIn("20 clips", self.expect(0, self.out, "--no-mp4"))
        sheet = np.asarray(Image.open(self.out / "view/sheet.png").convert("RGB"))
        for number in range(20):
            self.assertGreaterEqual((sheet == 3 + 12 * number).all(2).sum(), 2 * 192 * 192)
        self.assertLess(max(sheet.shape), 4100)

    def test_large_clips_are_reduced_and_odd_texts_do_no_harm(self):
        self.add(0, clip_of(49, 480, 720), prompt="δ 猫\n\t\x07 " + "x" * 3000)
        self.expect(0, self.out, "--no-mp4")
        with Image.open(self.out / "view/000000.png") as picture:
            self.assertLess(max(picture.size), 2000)

    def test_a_choice_of_clips_and_another_folder(self):
        for number in range(3):
            self.add(number, clip_of(1, 16, 16))
        self.index(3)
        self.expect(0, self.out / "job.h5", "--no-mp4", "--clip", "1", "--to", self.folder / "a/b")
        self.assertEqual(sorted(path.name for path in (self.folder / "a/b").iterdir()),
                         ["000001.png", "sheet.png"])
        self.assertFalse((self.out / "view").exists())

    def test_an_unfinished_job_is_shown_as_far_as_it_is(self):
        self.add(0, clip_of(1, 16, 16))
        self.add(2, clip_of(1, 16, 16))
        (self.out / "clips/.000003.h5.partial").write_bytes(b"half")
        said = self.expect(0, self.out, "--no-mp4")
        self.assertIn("the job is not finished; complete so far: 0, 2", said)
        self.assertEqual(sorted(path.name for path in (self.out / "view").iterdir()),
                         ["000000.png", "000002.png", "sheet.png"])

    # -- films ------------------------------------------------------------------------------------

    def probe(self, path):
        said = subprocess.run(
            ["ffprobe", "-v", "error", "-count_frames", "-of", "json", "-show_entries",
             "stream=codec_name,pix_fmt,width,height,r_frame_rate,nb_read_frames", path],
            check=True, capture_output=True, timeout=60).stdout
        return json.loads(said)["streams"][0]

    def decoded(self, path, height, width):
        raw = subprocess.run(["ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt",
                              "rgb24", "-"], check=True, capture_output=True, timeout=60).stdout
        return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)

    @needs_ffmpeg
    def test_a_film_has_every_frame_at_the_right_rate_in_the_right_colours(self):
        self.add(0, clip_of(9, 64, 64), fps=12.5)
        self.expect(0, self.out)
        path = self.out / "view/000000.mp4"
        self.assertEqual(self.probe(path), {
            "codec_name": "h264", "pix_fmt": "yuv420p", "width": 384, "height": 384,
            "r_frame_rate": "25/2", "nb_read_frames": "9"})
        film = self.decoded(path, 384, 384).astype(int)
        for t in range(9):
            for half, colour in ((film[t, 8:-8, 8:180], COLOURS[t % 4]),
                                 (film[t, 8:-8, 204:-8], RIGHT)):
                self.assertLessEqual(np.abs(half - colour).max(), 6, (t, colour))

    @needs_ffmpeg
    def test_sides_are_even_whatever_the_clip_has(self):
        for number, (height, width) in enumerate([(385, 401), (33, 77), (8, 2000)]):
            self.add(number, clip_of(2, height, width))
        self.expect(0, self.out)
        sizes = [self.probe(self.out / f"view/00000{i}.mp4") for i in range(3)]
        self.assertEqual([(size["width"], size["height"]) for size in sizes],
                         [(402, 386), (924, 396), (2000, 8)])

    # -- animated pictures -----------------------------------------------------------------------

    def animation(self, path):
        """Frames as arrays, their durations in ms, and how often it repeats (0: without end)."""
        with Image.open(path) as picture:
            frames, durations = [], []
            for i in range(picture.n_frames):
                picture.seek(i)
                picture.load()  # WebP knows the duration only then
                frames.append(np.asarray(picture.convert("RGB")).astype(int))
                durations.append(picture.info["duration"])
            return frames, durations, picture.info.get("loop")

    @needs_ffmpeg
    def test_animated_pictures(self):
        self.add(0, clip_of(9, 64, 64), fps=12.5)
        said = self.expect(0, self.out, "--gif", "--webp", "--no-mp4")
        self.assertIn("PNG, GIF and WebP of each", said)
        self.assertEqual(sorted(path.name for path in (self.out / "view").iterdir()),
                         ["000000.gif", "000000.png", "000000.webp", "sheet.png"])
        for kind, error in (("gif", 2), ("webp", 10)):
            frames, durations, loop = self.animation(self.out / f"view/000000.{kind}")
            self.assertEqual((durations, loop), ([80] * 9, 0), kind)
            for t, frame in enumerate(frames):
                self.assertEqual(frame.shape, (384, 384, 3))
                for half, colour in ((frame[8:-8, 8:180], COLOURS[t % 4]),
                                     (frame[8:-8, 204:-8], RIGHT)):
                    self.assertLessEqual(np.abs(half - colour).max(), error, (kind, t))

    @needs_ffmpeg
    def test_a_gif_keeps_the_clips_time(self):
        """GIFs count in hundredths of a second."""
        for number, (fps, frames) in enumerate([(8.0, 8), (24.0, 24), (100.0, 100)]):
            self.add(number, clip_of(frames, 32, 32), fps=fps)
        self.expect(0, self.out, "--gif", "--no-mp4")
        for number in range(3):
            _, durations, _ = self.animation(self.out / f"view/00000{number}.gif")
            self.assertLessEqual(abs(sum(durations) - 1000), 40)
            self.assertGreaterEqual(min(durations), 20)  # browsers slow down shorter ones

    # -- while a job runs -------------------------------------------------------------------------

    def job(self, status, clips=3):
        """job.h5 of a job of some clips, replaced as a whole."""
        other = self.folder / "other"
        results_support.write_index(other, [{}] * clips, status=status, trace=False)
        self.out.mkdir(exist_ok=True)
        (other / "job.h5").replace(self.out / "job.h5")

    def tell(self, **content):
        partial = self.out / ".status.json.partial"
        partial.write_text(json.dumps({"clips": 3, "complete": 0, "ranks": []} | content))
        partial.replace(self.out / "status.json")

    def lock(self):
        """Locks the folder as a job does."""
        (self.out / ".lock").touch()
        file = os.open(self.out / ".lock", os.O_RDWR)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK,
                    struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return file

    def appear(self, number):
        self.add(number, clip_of(2, 16, 16))

    def watched(self, **options):
        """(exit status, standard output) of watching in this process."""
        said = io.StringIO()
        (self.out / "view").mkdir(exist_ok=True)
        with contextlib.redirect_stdout(said):
            status = watch.follow(self.out, lambda count: Viewer(self.out / "view", 9, [], count),
                                  pause=0.02, **options)
        return status, said.getvalue()

    def test_control_characters_do_not_reach_the_terminal(self):
        self.job("complete")
        self.tell(updated="a", at_work=[{"clip": 1, "state": "\x1b]0;owned\x07 \u009b31m \u202e"}])
        self.appear(0)
        _, said = self.watched()
        self.assertIn("clip 1 ", said)
        self.assertFalse([one for one in said if not one.isprintable() and one != "\n"])

    def test_memory_of_the_fullest_rank(self):
        gib = 2 ** 30
        self.job("complete")
        self.tell(updated="a", ranks=[
            {"rank": 0, "memory": {"used": 2 * gib, "limit": 4 * gib, "others": 0}},
            {"rank": 1, "memory": {"used": 3 * gib, "limit": 4 * gib, "others": gib // 2}},
            {"rank": 2}])
        self.appear(0)
        _, said = self.watched()
        self.assertIn("000000.png; memory: rank 1 uses 3.0 of 4.0 GiB, others 0.5 GiB\n", said)
        for wrong in ([{"memory": 1}], [{"rank": 0, "memory": {"used": "a", "limit": 1}}], 7, [3]):
            self.assertEqual(watch.memory({"ranks": wrong}), "")

    def test_a_job_is_watched_while_it_grows(self):
        self.job("unfinished")
        lock = self.lock()
        self.tell(updated="a", at_work=[{"clip": 1, "state": "denoising", "step": 7, "steps": 20,
                                         "ranks": [0]}, {"clip": 2, "state": "encoding"}])
        self.appear(0)
        with subprocess.Popen([sys.executable, "-B", TOOL, self.out, "--watch", "--no-mp4"],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
            try:
                self.assertEqual(tool.stdout.readline(), (
                    f"reelmesh-view: clip 0, 1 of 3: {self.out}/view/000000.png; at work: clip 1 "
                    "denoising step 7 of 20, clip 2 encoding\n"))
                before = (self.out / "view/000000.png").stat().st_mtime_ns
                self.tell(updated="b", at_work=[])
                self.appear(2)
                self.assertEqual(tool.stdout.readline(),
                                 f"reelmesh-view: clip 2, 2 of 3: {self.out}/view/000002.png\n")
                self.appear(1)
                self.job("complete")
                (self.out / "status.json").unlink()
                os.close(lock)
                rest, errors = tool.communicate(timeout=60)
            except BaseException:
                tool.kill()
                raise
        self.assertIn("clip 1, 3 of 3", rest)
        self.assertIn("the job is complete; 3 clips in", rest)
        self.assertEqual((tool.returncode, errors), (0, ""))
        self.assertEqual((self.out / "view/000000.png").stat().st_mtime_ns, before)
        sheet = np.asarray(Image.open(self.out / "view/sheet.png").convert("RGB"))
        self.assertEqual((sheet == COLOURS[0]).all(2).sum(), 3 * 160 * 80)

    def test_ctrl_c(self):
        self.job("unfinished")
        self.lock()
        self.appear(0)
        with subprocess.Popen([sys.executable, "-B", TOOL, self.out, "--watch", "--no-mp4"],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
            tool.stdout.readline()
            tool.send_signal(signal.SIGINT)
            _, errors = tool.communicate(timeout=60)
        self.assertEqual((tool.returncode, errors), (130, ""))

    def test_how_a_watched_job_has_ended(self):
        self.out.mkdir()
        self.appear(0)
        for end, status in (("failed", 1), ("stopped", 75), ("complete", 0)):
            self.job(end)
            self.assertEqual(self.watched()[0], status)
        self.job("unfinished")
        self.tell(updated="a")
        status, said = self.watched(patience=0.2)
        self.assertEqual(status, 76)
        self.assertIn("it was killed, or failed; 1 clip in", said)

    def test_a_job_that_holds_its_lock_is_not_given_up(self):
        self.job("unfinished")
        lock = self.lock()
        self.assertTrue(watch._locked(self.out / ".lock"))
        with subprocess.Popen([sys.executable, "-B", "-c", WATCHER, str(self.out)],
                              stdout=subprocess.DEVNULL) as other:
            time.sleep(1.5)
            self.assertIsNone(other.poll())  # far beyond its patience of 0.2 s
            os.close(lock)
            other.communicate(timeout=60)
        self.assertEqual(other.returncode, 76)

    def test_a_damaged_clip_of_a_watched_job(self):
        self.job("complete")
        self.appear(0)
        self.appear(1)
        (self.out / "clips/000001.h5").write_bytes(b"not HDF5")
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(self.watched()[0], 65)
        self.assertIn("000001.h5: not a readable HDF5 file", errors.getvalue())

    def test_what_cannot_be_watched(self):
        self.refused(66, "no such folder", self.out, "--watch", "--no-mp4")
        self.out.mkdir()
        self.refused(66, "has no job.h5; expected the output folder of a running job", self.out,
                     "--watch", "--no-mp4")
        self.refused(64, "not allowed with --watch", self.out, "--watch", "--clip", "0")

    # -- failures ---------------------------------------------------------------------------------

    def test_what_is_not_there(self):
        self.refused(66, "nowhere: no such folder", self.folder / "nowhere", "--no-mp4")
        self.out.mkdir()
        self.refused(66, "no clip is complete in", self.out, "--no-mp4")
        self.add(0, clip_of(1, 16, 16))
        self.index(1)
        self.refused(66, "no clip 7; complete are 0", self.out, "--no-mp4", "--clip", "7")

    def test_clips_that_a_job_did_not_make_are_named(self):
        self.add(0, clip_of(1, 16, 16))
        results_support.write_index(self.out, [{}] * 3, {1: ("failed", "NaN"), 2: ("missing", "")},
                                    status="failed", trace=False)
        done = self.call(self.out, "--no-mp4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("clips 1-2 of job.h5 are not there", done.stderr)

    def test_files_of_other_jobs_are_not_shown(self):
        for number in range(4):
            self.add(number, clip_of(1, 16, 16))
        results_support.write_index(self.out, [{}] * 3, {1: ("failed", "NaN")}, status="failed",
                                    trace=False)
        done = self.call(self.out, "--no-mp4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("clips 1 of job.h5 are not there", done.stderr)
        self.assertEqual(sorted(path.name for path in (self.out / "view").iterdir()),
                         ["000000.png", "000002.png", "sheet.png"])
        said = self.watched()[1]
        self.assertIn("clip 2, 2 of 3", said)
        self.assertNotIn("clip 1", said)

    def test_a_job_without_video(self):
        self.add(0, None)
        self.index(1)
        self.refused(66, "has no video", self.out, "--no-mp4")

    def test_wrong_options(self):
        self.refused(64, "--frames", self.out, "--frames", "0")
        self.refused(64, "unrecognized", self.out, "--colour")

    def test_a_damaged_clip_does_not_keep_the_others_back(self):
        self.add(0, clip_of(1, 16, 16))
        self.add(1, clip_of(1, 16, 16))
        self.add(2, np.zeros((2, 16, 16), np.uint8))
        broken = self.out / "clips/000000.h5"
        broken.write_bytes(broken.read_bytes()[:500])
        self.index(3)
        done = self.call(self.out, "--no-mp4")
        self.assertEqual(done.returncode, 65, done.stderr)
        told = done.stderr.splitlines()
        self.assertEqual(len(told), 2, told)
        self.assertIn("000000.h5: not a readable HDF5 file", told[0])
        self.assertIn("000002.h5: video is uint8 [2, 16, 16], expected uint8 [frame", told[1])
        self.assertEqual(sorted(path.name for path in (self.out / "view").iterdir()),
                         ["000001.png", "sheet.png"])

    def test_a_folder_that_cannot_be_made(self):
        self.add(0, clip_of(1, 16, 16))
        self.index(1)
        (self.folder / "file").write_text("")
        self.refused(73, "cannot make the folder", self.out, "--no-mp4", "--to",
                     self.folder / "file/below")

    def test_missing_packages_are_named(self):
        self.add(0, clip_of(1, 16, 16))
        done = subprocess.run([sys.executable, "-BS", TOOL, self.out], text=True,
                              capture_output=True, timeout=60)
        if done.returncode == 0:
            self.skipTest("packages are found without the site folder")
        self.assertEqual(done.returncode, 69, done.stderr)
        self.assertIn("apt install python3-numpy python3-h5py python3-pil", done.stderr)

    def test_missing_ffmpeg_is_named_before_anything_is_written(self):
        self.add(0, clip_of(1, 16, 16))
        self.refused(69, "ffmpeg is not installed", self.out, environment={"PATH": ""})
        self.assertFalse((self.out / "view").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)

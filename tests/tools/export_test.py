#!/usr/bin/python3
"""Tests of tools/reelmesh-export: reads back what it writes.

Ends with status 77 (skipped) if Debian's packages for it are not installed. Without ffmpeg the
tests of MP4s are skipped.
"""
import json
import shutil
import struct
import subprocess
import sys
import unittest

try:
    import h5py
    import numpy as np
    from PIL import Image
except ImportError as missing:
    print(f"export_test: passed over: {missing}")
    sys.exit(77)

import results_support
from tool_support import ToolTest

needs_ffmpeg = unittest.skipUnless(shutil.which("ffmpeg") and shutil.which("ffprobe"),
                                   "ffmpeg is not installed")
COMMENT = ("seed 43, steps 20, guidance 3, model inputs/demo_model, scheduler "
           "CogVideoXDDIMScheduler, dtype float32, fingerprint model 0123456789abcdef, reelmesh "
           "0.1.0 (0123456789ab)")


def read_safetensors(path):
    """(metadata, name → array), read after the description of the format."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__")
    values, at = {}, 0
    for name, one in header.items():
        begin, end = one["data_offsets"]
        assert begin == at and one["dtype"] == "F32", one  # in order, without gaps
        values[name] = np.frombuffer(raw[8 + length + begin:8 + length + end],
                                     "<f4").reshape(one["shape"])
        at = end
    assert length % 8 == 0 and len(raw) == 8 + length + at
    return metadata, values


class Export(ToolTest):
    tool = "reelmesh-export"

    def setUp(self):
        super().setUp()
        self.out, self.to = self.folder / "out", self.folder / "to"
        results_support.write_job(self.out, clips=3, spans=100)

    def dataset(self, number, name):
        with h5py.File(self.out / f"clips/{number:06}.h5") as file:
            return file[name][()]

    def made(self):
        return sorted(str(path.relative_to(self.to)) for path in self.to.rglob("*.*"))

    def probe(self, path):
        said = subprocess.run(
            ["ffprobe", "-v", "error", "-count_frames", "-of", "json", "-show_entries",
             "stream=codec_name,pix_fmt,width,height,r_frame_rate,nb_read_frames:format_tags",
             path], check=True, capture_output=True, timeout=60).stdout
        found = json.loads(said)
        return found["streams"][0], found["format"]["tags"]

    def decoded(self, path, height, width):
        raw = subprocess.run(["ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt",
                              "rgb24", "-"], check=True, capture_output=True, timeout=60).stdout
        return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)

    # -- films ------------------------------------------------------------------------------------

    @needs_ffmpeg
    def test_mp4(self):
        said = self.expect(0, self.out, "--clip", "1", "--to", self.to)
        self.assertIn("1 clip in", said)
        self.assertEqual(self.made(), ["000001.mp4"])
        stream, tags = self.probe(self.to / "000001.mp4")
        self.assertEqual(stream, {"codec_name": "h264", "pix_fmt": "yuv420p", "width": 64,
                                  "height": 64, "r_frame_rate": "8/1", "nb_read_frames": "9"})
        expected = {"title": "a square moves to the right, 1", "comment": COMMENT, "seed": "43",
                    "steps": "20", "guidance": "3", "model": "inputs/demo_model",
                    "scheduler": "CogVideoXDDIMScheduler", "dtype": "float32",
                    "fingerprint": "model 0123456789abcdef", "reelmesh": "0.1.0 (0123456789ab)",
                    "com.apple.quicktime.title": "a square moves to the right, 1"}
        self.assertEqual({name: tags.get(name) for name in expected}, expected)
        film = self.decoded(self.to / "000001.mp4", 64, 64).astype(int)
        mean = np.abs(film - self.dataset(1, "video")).mean()
        self.assertLess(mean, 3)  # of 255: colours have half the resolution

    @needs_ffmpeg
    def test_quality_and_odd_sizes(self):
        noise = np.random.default_rng(1).integers(0, 256, (4, 33, 47, 3), np.uint8)
        results_support.write_clip(self.out, 0, noise, fps=12.5)
        sizes = []
        for quality in ("0", "14", "40"):
            self.expect(0, self.out, "--clip", "0", "--to", self.to, "--quality", quality)
            sizes.append((self.to / "000000.mp4").stat().st_size)
        self.assertGreater(sizes[0], sizes[1])
        self.assertGreater(sizes[1], sizes[2])
        stream, _ = self.probe(self.to / "000000.mp4")
        self.assertEqual((stream["width"], stream["height"], stream["r_frame_rate"]),
                         (48, 34, "25/2"))

    @needs_ffmpeg
    def test_lossless(self):
        noise = np.random.default_rng(1).integers(0, 256, (4, 33, 47, 3), np.uint8)
        results_support.write_clip(self.out, 2, noise, "a prompt\nof = two; lines")
        self.expect(0, self.out, "--clip", "2", "--to", self.to, "--lossless")
        self.assertEqual(self.made(), ["000002.mkv"])
        stream, tags = self.probe(self.to / "000002.mkv")
        self.assertEqual((stream["codec_name"], tags["title"], tags["SEED"]),
                         ("ffv1", "a prompt\nof = two; lines", "44"))
        self.assertTrue((self.decoded(self.to / "000002.mkv", 33, 47) == noise).all())

    # -- pictures and arrays ----------------------------------------------------------------------

    def test_png(self):
        (self.to / "000002").mkdir(parents=True)
        (self.to / "000002/frame_0009.png").write_bytes(b"of a longer clip")
        self.expect(0, self.out, "--clip", "2", "--to", self.to, "--format", "png")
        self.assertEqual(self.made(), [f"000002/frame_{i:04}.png" for i in range(9)])
        video = self.dataset(2, "video")
        for i in range(9):
            with Image.open(self.to / f"000002/frame_{i:04}.png") as picture:
                self.assertTrue((np.asarray(picture) == video[i]).all())
                self.assertEqual(picture.text["Title"], "a square moves to the right, 2")
                self.assertEqual((picture.text["frame"], picture.text["seed"]), (str(i), "44"))
        self.assertEqual(picture.text["time"], "1 s")

    def test_safetensors(self):
        embeddings = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
        with h5py.File(self.out / "clips/000001.h5", "r+") as file:
            file["prompt_embeds"] = embeddings
            file.attrs["prompt"] = 'δ "quoted" 猫'
        self.expect(0, self.out, "--all", "--to", self.to, "--format", "safetensors")
        self.assertEqual(self.made(), [f"00000{i}.safetensors" for i in range(3)])
        metadata, values = read_safetensors(self.to / "000001.safetensors")
        self.assertEqual(sorted(values), ["latents", "prompt_embeds"])
        self.assertTrue((values["latents"] == self.dataset(1, "latents")).all())
        self.assertTrue((values["prompt_embeds"] == embeddings).all())
        self.assertEqual(metadata, {
            "format": "pt", "prompt": 'δ "quoted" 猫', "negative_prompt": "", "seed": "43",
            "steps": "20", "guidance": "3", "model": "inputs/demo_model", "dtype": "float32",
            "scheduler": "CogVideoXDDIMScheduler", "fingerprint": "model 0123456789abcdef",
            "fps": "8", "reelmesh": "0.1.0 (0123456789ab)"})

    def test_npy(self):
        self.expect(0, self.out / "job.h5", "--clip", "0", "--clip", "2", "--to", self.to,
                    "--format", "npy")
        self.assertEqual(self.made(), ["000000_latents.npy", "000000_video.npy",
                                       "000002_latents.npy", "000002_video.npy"])
        for name in ("video", "latents"):
            found = np.load(self.to / f"000002_{name}.npy")
            expected = self.dataset(2, name)
            self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape))
            self.assertTrue((found == expected).all())

    def test_clips_in_folders(self):
        out = self.folder / "many"
        for number in (9_999, 12_345):
            results_support.write_clip(out, number,
                                       results_support.moving_square(5, 16, 16, number))
        elsewhere = out / "clips/011/012346.h5"  # not its place
        elsewhere.parent.mkdir()
        shutil.copy(out / "clips/012/012345.h5", elsewhere)
        self.expect(0, out, "--all", "--to", self.to, "--format", "safetensors")
        self.assertEqual(self.made(), ["009999.safetensors", "012345.safetensors"])

    def test_a_clip_file_alone(self):
        alone = self.folder / "elsewhere/clip.h5"
        alone.parent.mkdir()
        shutil.copy(self.out / "clips/000000.h5", alone)
        self.expect(0, alone, "--to", self.to, "--format", "safetensors,npy")
        self.assertEqual(self.made(), ["clip.safetensors", "clip_latents.npy", "clip_video.npy"])
        self.assertNotIn("reelmesh", read_safetensors(self.to / "clip.safetensors")[0])

    def test_datasets_that_a_clip_lacks(self):
        with h5py.File(self.out / "clips/000000.h5", "r+") as file:
            del file["video"]
        with h5py.File(self.out / "clips/000001.h5", "r+") as file:
            del file["latents"]
        self.expect(0, self.out, "--clip", "0", "--to", self.to, "--format", "npy,safetensors")
        self.assertEqual(self.made(), ["000000.safetensors", "000000_latents.npy"])
        self.refused(66, "has no video", self.out, "--clip", "0", "--to", self.to, "--format",
                     "png")
        self.refused(66, "has no latents; the job was run with output.latents = no", self.out,
                     "--clip", "1", "--to", self.to, "--format", "safetensors")

    def test_links_are_not_followed(self):
        mine = self.folder / "mine"
        mine.mkdir()
        (mine / "frame_9999.png").write_text("mine")
        self.to.mkdir()
        for name in (".000002_video.npy", ".000002_video.npy.partial", "000002_video.npy"):
            (self.to / name).symlink_to(mine / "frame_9999.png")
        self.expect(0, self.out, "--clip", "2", "--to", self.to, "--format", "npy")
        self.assertEqual(sorted(path.name for path in self.to.iterdir()),
                         [".000002_video.npy", "000002_latents.npy", "000002_video.npy"])
        self.assertFalse((self.to / "000002_video.npy").is_symlink())
        (self.to / "000001").symlink_to(mine)
        self.refused(73, self.to / "000001", self.out, "--clip", "1", "--to", self.to, "--format",
                     "png")
        self.assertEqual([(path.name, path.read_text()) for path in mine.iterdir()],
                         [("frame_9999.png", "mine")])

    # -- VBench -----------------------------------------------------------------------------------

    def write_prompts(self, *prompts, states=None):
        """The requests of the job's three clips."""
        results_support.write_index(self.out, [{"prompt": prompt} for prompt in prompts], states,
                                    status="failed" if states else "complete")

    def vbench(self, *arguments):
        self.expect(0, self.out, "--vbench", self.to, *arguments)
        return self.made()

    @needs_ffmpeg
    def test_names_of_vbench(self):
        self.write_prompts("a cat, oil painting", "An alley-2 at 5.30 p.m", "a cat, oil painting")
        self.assertEqual(self.vbench(), ["An alley-2 at 5.30 p.m-0.mp4",
                                         "a cat, oil painting-0.mp4", "a cat, oil painting-1.mp4"])
        stream, tags = self.probe(self.to / "a cat, oil painting-1.mp4")
        self.assertEqual((stream["codec_name"], stream["nb_read_frames"], tags["seed"]),
                         ("h264", "9", "44"))
        self.assertEqual(len(self.vbench()), 3)  # once more

    @needs_ffmpeg
    def test_clips_that_failed_keep_their_index(self):
        self.write_prompts("a", "a", "a", states={0: ("failed", "NaN")})
        done = self.call(self.out, "--vbench", self.to)
        self.assertEqual(done.returncode, 0)
        self.assertIn("clips 0 of job.h5 are not there", done.stderr)
        self.assertEqual(self.made(), ["a-1.mp4", "a-2.mp4"])

    @needs_ffmpeg
    def test_previews_are_left_out(self):
        self.write_prompts("a", "a", "a", states={0: ("preview", "")})
        with h5py.File(self.out / "clips/000000.h5", "a") as file:
            file.attrs["stopped_after"] = 5
        done = self.call(self.out, "--vbench", self.to)
        self.assertEqual(done.returncode, 0)
        self.assertIn(f"warning: {self.out}: clip 0 is a preview, which reelmesh run --from "
                      f"{self.out}/job.h5 --clips 0 completes; left out", done.stderr)
        self.assertEqual(self.made(), ["a-1.mp4", "a-2.mp4"])
        shutil.rmtree(self.to)
        for number in (1, 2):
            with h5py.File(self.out / f"clips/{number:06}.h5", "a") as file:
                file.attrs["stopped_after"] = 5
        self.refused(66, f"clips 0-2 are previews, which reelmesh run --from {self.out}/job.h5 "
                     "--clips 0-2 completes; no clip is complete", self.out, "--vbench", self.to)
        self.assertFalse(self.to.exists())

    @needs_ffmpeg
    def test_folders_of_dimensions(self):
        self.write_prompts("a", "a", "b")
        listed = self.folder / "info.json"
        listed.write_text(json.dumps([
            {"prompt_en": "a", "dimension": ["scene", "background_consistency"]},
            {"prompt_en": "b", "dimension": ["scene"], "auxiliary_info": {"scene": 1}},
            {"prompt_en": "a", "dimension": ["color", "scene"]}]))
        self.assertEqual(self.vbench("--dimensions", listed), [
            *(f"background_consistency/a-{i}.mp4" for i in range(2)),
            *(f"color/a-{i}.mp4" for i in range(2)),
            *(f"scene/a-{i}.mp4" for i in range(2)), "scene/b-0.mp4"])
        self.assertEqual((self.to / "color/a-1.mp4").read_bytes(),
                         (self.to / "scene/a-1.mp4").read_bytes())
        shutil.rmtree(self.to)
        self.write_prompts("a", "a", "c")
        self.refused(65, "has no entry for the prompt of clip 2, 'c'", self.out, "--vbench",
                     self.to, "--dimensions", listed)
        for text in ('{"a": 1}', '[{"prompt_en": "a"}]', "[1", '[{"prompt_en": "a", "dimension": '
                     '["../up"]}]'):
            listed.write_text(text)
            self.refused(65, f"{listed}: expected a list of objects", self.out, "--vbench", self.to,
                         "--dimensions", listed)
        self.refused(66, "none.json: cannot be read", self.out, "--vbench", self.to,
                     "--dimensions", self.folder / "none.json")
        self.assertFalse(self.to.exists())

    @needs_ffmpeg
    def test_names_in_place_of_prompts(self):
        results_support.write_job(self.out, clips=4, spans=100, frames=2, height=16, width=16)
        self.write_prompts("a long/augmented prompt", "a long/augmented prompt", "b", "b")
        listed = self.folder / "names.txt"
        listed.write_text("An alley\n\nA beach\n")
        self.assertEqual(self.vbench("--names", listed), ["A beach-0.mp4", "A beach-1.mp4",
                                                         "An alley-0.mp4", "An alley-1.mp4"])
        listed.write_text("one\ntwo\nthree\n")
        self.refused(65, "has 3 names for 4 clips, expected equally many clips for each name",
                     self.out, "--vbench", self.to, "--names", listed)

    @needs_ffmpeg
    def test_prompts_that_cannot_name_a_file(self):
        for prompt, reason in (("16/9 format", "has the character '/'"), (" ", "is empty"),
                               ("two\nlines", r"has the character '\n'"),
                               ("\x1b[31mred", r"has the character '\x1b'"),
                               ("ä" * 130, "has 260 bytes")):
            self.write_prompts("a", "b", prompt)
            self.refused(65, f"clip 2: its prompt {reason}, so it cannot name a file", self.out,
                         "--vbench", self.to)
        self.assertFalse(self.to.exists())
        self.write_prompts("a", "b", "c" * 240)  # the longest
        self.assertIn("c" * 240 + "-0.mp4", self.vbench())

    @needs_ffmpeg
    def test_a_folder_of_vbench_has_only_videos(self):
        self.to.mkdir()
        (self.to / "seeds.txt").write_text("mine")
        self.refused(73, "found seeds.txt, expected a folder with nothing but videos", self.out,
                     "--vbench", self.to)
        self.assertEqual(self.made(), ["seeds.txt"])

    # -- wrong use --------------------------------------------------------------------------------

    def test_wrong_use(self):
        to = ("--to", self.to)
        for arguments, part in (
                ((self.out, *to), "expected --clip N or --all"),
                ((self.out, "--all", "--clip", "0", *to), "expected --clip N or --all"),
                ((self.out, "--all"), "required: --to"),
                ((self.out / "clips/000000.h5", "--all", *to), "is a clip"),
                ((self.out, "--all", *to, "--format", "mp4,gif"), "found 'gif', expected mp4, png"),
                ((self.out, "--all", *to, "--quality", "52"), "from 0 to 51"),
                ((self.out, "--clip", "-1", *to), "expected a whole number"),
                ((self.out, "--vbench", self.to, "--all"), "--all: not allowed with --vbench"),
                ((self.out, "--vbench", self.to, "--format", "png"), "--format: not allowed"),
                ((self.out, "--all", *to, "--names", "a"), "--names: expected --vbench with it"),
                ((self.out / "clips/000000.h5", "--vbench", self.to), "is a clip, expected a job")):
            self.refused(64, part, *arguments)
        self.refused(66, "no clip 7; complete are 0-2", self.out, "--clip", "7", *to)
        self.refused(69, "ffmpeg is not installed", self.out, "--all", *to,
                     environment={"PATH": ""})
        self.assertFalse(self.to.exists())

    def test_files_of_other_jobs_are_not_exported(self):
        results_support.write_index(self.out, [{}] * 2, {0: ("failed", "NaN")}, status="failed")
        self.refused(66, "no clip 2; complete are 1", self.out, "--clip", "2", "--to", self.to,
                     "--format", "npy")
        self.call(self.out, "--all", "--to", self.to, "--format", "npy")
        self.assertEqual(sorted(path.name for path in self.to.iterdir()),
                         ["000001_latents.npy", "000001_video.npy"])

    def test_a_damaged_clip_does_not_keep_the_others_back(self):
        path = self.out / "clips/000001.h5"
        path.write_bytes(path.read_bytes()[:500])
        self.refused(65, "000001.h5: not a readable HDF5 file", self.out, "--all", "--to", self.to,
                     "--format", "npy")
        self.assertEqual(len(self.made()), 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)

#!/usr/bin/python3
"""Frames of videos have the bytes that the command ffmpeg gives, in all formats that are read, and
all of them are counted. Skipped where ffmpeg is not installed."""
import fractions
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

if shutil.which("ffmpeg") is None:
    sys.exit(77)

PROGRAM = os.environ["REELMESH_MEDIA_BYTES"]

# name of the file -> options of the encoder
VIDEOS = {
    "h264.mp4": "-c:v libx264 -pix_fmt yuv420p -bf 3",
    "h264_bt709.mp4": "-c:v libx264 -pix_fmt yuv420p -colorspace bt709 -color_trc bt709",
    "h264_full_range.mp4": "-c:v libx264 -pix_fmt yuvj420p",
    "h264_10_bits.mp4": "-c:v libx264 -pix_fmt yuv420p10le",
    "h264_rgb.mp4": "-c:v libx264rgb -crf 0",
    "h264_interlaced.mp4": "-c:v libx264 -pix_fmt yuv420p -flags +ildct+ilme",
    "h264_open_groups.mp4": "-frames:v 30 -c:v libx264 -pix_fmt yuv420p -x264-params "
                            "open-gop=1:keyint=10:min-keyint=10:bframes=3:scenecut=0",
    "h264.ts": "-c:v libx264 -pix_fmt yuv420p",
    "hevc.mp4": "-c:v libx265 -x265-params log-level=error:pools=1",
    "vp8.webm": "-c:v libvpx",
    "vp9.webm": "-c:v libvpx-vp9 -vf scale=65:47 -pix_fmt yuv420p",
    "vp9_alternate_references.webm": "-c:v libvpx-vp9 -auto-alt-ref 1 -lag-in-frames 8 -b:v 50k",
    "ffv1.mkv": "-c:v ffv1 -level 3 -slicecrc 1 -vf scale=65:47 -pix_fmt yuv420p",
    "ffv1_444.mkv": "-c:v ffv1 -vf scale=65:47 -pix_fmt yuv444p",
    "ffv1_422.mkv": "-c:v ffv1 -vf scale=65:47 -pix_fmt yuv422p",
    "ffv1_rgb.mkv": "-c:v ffv1 -vf scale=65:47 -pix_fmt bgr0",
    "ffv1_grey.mkv": "-c:v ffv1 -pix_fmt gray",
    "ffv1_alpha.mkv": "-c:v ffv1 -pix_fmt yuva420p",
    "mpeg4.avi": "-c:v mpeg4 -bf 2",
    "mpeg2.ts": "-c:v mpeg2video",
    "mjpeg.avi": "-c:v mjpeg",
    "raw.avi": "-c:v rawvideo -pix_fmt bgr24",
    "prores.mov": "-c:v prores_ks",
    "theora.ogg": "-c:v libtheora",
    "animation.gif": "",
    "rate.mp4": "-c:v libx264 -r 30000/1001",
    "variable_rate.mp4": "-c:v libx264 -vf select=not(mod(n\\,3)) -fps_mode vfr",
}
# Videos of others, without encoding them again: name -> original, options before and after it.
# Before FFmpeg 6, the angle is an option of the output.
HELP = subprocess.run(["ffmpeg", "-v", "error", "-h", "full"], capture_output=True, text=True).stdout
COPIES = {f"turned_by_{angle}.mp4":
          ("h264.mp4", f"-display_rotation {-angle}", "") if "-display_rotation" in HELP else
          ("h264.mp4", "", f"-metadata:s:v:0 rotate={angle}") for angle in (90, 180, 270)}
COPIES["edited.mp4"] = ("h264.mp4", "-ss 0.4", "")  # begins between two key frames
COPIES["edited_open_groups.mp4"] = ("h264_open_groups.mp4", "-ss 1.5", "")  # refers to frames cut off


class Videos(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="reelmesh_videos_")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def ffmpeg(self, *words, **options):
        return subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-y", *words], check=True,
                              cwd=self.folder, **options)

    def average_rate(self, name):
        told = subprocess.run(["ffprobe", "-v", "error", "-show_entries", "stream=avg_frame_rate",
                               "-of", "csv=p=0", name], check=True, cwd=self.folder,
                              stdout=subprocess.PIPE, text=True).stdout
        return float(fractions.Fraction(told.strip()))

    def answers(self, lines):
        done = subprocess.run([PROGRAM], input="\n".join(lines), stdout=subprocess.PIPE, text=True,
                              check=True, cwd=self.folder, timeout=200)
        return done.stdout.splitlines()

    def test_bytes_of_ffmpeg(self):
        for name, options in VIDEOS.items():
            self.ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=8", "-frames:v", "9",
                        "-threads", "1", *options.split(), name)
        for name, (original, before, after) in COPIES.items():
            self.ffmpeg(*before.split(), "-i", original, "-c", "copy", *after.split(), name)
        self.ffmpeg("-f", "lavfi", "-i", "sine", "-i", "h264.mp4", "-map", "0:a", "-map", "1:v",
                    "-t", "1", "-c:v", "copy", "-c:a", "aac", "sound.mp4")
        names = [*VIDEOS, *COPIES, "sound.mp4"]
        answers = self.answers([f"video {name} {name}.out" for name in names])
        self.assertEqual(len(answers), len(names))
        for name, answer in zip(names, answers):
            with self.subTest(name):
                expected = self.ffmpeg(
                    "-i", name, "-map", "0:v:0", "-fps_mode", "passthrough", "-f", "rawvideo",
                    "-pix_fmt", "rgb24", "-", stdout=subprocess.PIPE).stdout
                self.assertNotIn("error", answer)
                height, width, frames, rate = answer.split()[:4]
                self.assertEqual(int(height) * int(width) * int(frames) * 3, len(expected))
                self.assertEqual((self.folder / f"{name}.out").read_bytes(), expected)
                if name.endswith(".gif"):  # whose frames take 0.12 or 0.13 s
                    self.assertAlmostEqual(float(rate), self.average_rate(name), delta=1e-4)
                elif "rate" not in name and "edited" not in name:
                    self.assertAlmostEqual(float(rate), 8, delta=0.1)
        found = dict(zip(names, answers))
        self.assertEqual(found["h264.mp4"], "48 64 9 8")
        self.assertEqual(found["turned_by_90.mp4"], "64 48 9 8")
        self.assertTrue(found["rate.mp4"].endswith(" 29.97"))
        self.assertLess(int(found["edited.mp4"].split()[2]), 9)

    def test_frames_are_found_by_their_times(self):
        """From any frame on they are those of the whole video, which is counted without decoding it;
        frames that are not needed may be damaged."""
        formats = {"h264.mp4": "-c:v libx264 -g 20 -bf 3",
                   "open_groups.mp4": "-c:v libx264 -x264-params open-gop=1:keyint=20:bframes=3:scenecut=0",
                   "h264.ts": "-c:v libx264 -g 20", "vp8.webm": "-c:v libvpx -g 20 -auto-alt-ref 1 -lag-in-frames 8",
                   "vp9.webm": "-c:v libvpx-vp9 -g 20", "mpeg4.avi": "-c:v mpeg4 -bf 2 -g 20",
                   "mpeg2.ts": "-c:v mpeg2video -bf 2 -g 20", "theora.ogg": "-c:v libtheora -g 20",
                   "ffv1.mkv": "-c:v ffv1", "animation.gif": "",
                   "variable.mkv": "-vf select=gt(n\\,40)+not(mod(n\\,3)) -fps_mode vfr -c:v libx264 -g 20"}
        for name, options in formats.items():
            self.ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=8", "-frames:v", "90",
                        "-threads", "1", *options.split(), name)
        firsts = (1, 19, 20, 37, 61)
        for name in formats:
            whole, *found = self.answers([f"video {name} whole", *(
                f"frames {name} from{first} {first}" for first in firsts)])
            self.assertNotIn("error", whole)
            expected = (self.folder / "whole").read_bytes()
            for first, answer in zip(firsts, found):
                with self.subTest(name, first=first):
                    self.assertEqual(answer, whole)
                    self.assertEqual((self.folder / f"from{first}").read_bytes(),
                                     expected[first * 64 * 48 * 3:])
        # Frame 60 is damaged, so those from 80 on are not decoded from the beginning.
        told = subprocess.run(["ffprobe", "-v", "error", "-show_entries", "packet=pos,size", "-of",
                               "csv=p=0", "h264.mp4"], check=True, cwd=self.folder,
                              stdout=subprocess.PIPE, text=True).stdout.split()
        size, at = (int(word) for word in told[60].split(",")[:2])
        data = bytearray((self.folder / "h264.mp4").read_bytes())
        data[at + 24:at + size] = bytes(size - 24)
        (self.folder / "damaged.mp4").write_bytes(data)
        all_frames, before, after = self.answers(
            ["video damaged.mp4 whole", "frames damaged.mp4 before 40", "frames damaged.mp4 after 81"])
        self.assertIn("error 65", all_frames)
        self.assertIn("error 65", before)
        self.assertEqual(after.split()[:3], ["48", "64", "90"])
        self.answers(["frames h264.mp4 expected 81"])
        self.assertEqual((self.folder / "after").read_bytes(),
                         (self.folder / "expected").read_bytes())

    @unittest.skipIf("ASAN_OPTIONS" in os.environ, "AddressSanitizer keeps memory that was freed")
    def test_times_of_frames(self):
        """Those of a variable rate, by ffprobe; none of an even one, also where it is rounded."""
        for name, rate, frames in (("variable.mp4", "8", "lt(n,4)+not(mod(n,3))"),
                                   ("variable.mkv", "30000/1001", "not(mod(n,5))+gt(n,20)"),
                                   ("even.mkv", "30000/1001", "1"), ("even.mp4", "8", "not(mod(n,3))")):
            self.ffmpeg("-f", "lavfi", "-i", f"testsrc2=size=64x48:rate={rate}", "-vf",
                        f"select={frames}".replace(",", "\\,"), "-fps_mode", "vfr", "-frames:v", "12",
                        "-c:v", "libx264", name)
            told = subprocess.run(["ffprobe", "-v", "error", "-show_entries", "frame=pts_time",
                                   "-of", "csv=p=0", name], check=True, cwd=self.folder,
                                  stdout=subprocess.PIPE, text=True).stdout
            expected = [round(1000 * float(line.strip(","))) for line in told.split()]
            found = [int(word) for word in self.answers([f"video {name} {name}.out"])[0].split()[4:]]
            self.assertEqual(found, expected if name.startswith("variable") else [], name)

    def test_memory_does_not_grow_with_frames(self):
        for name, frames in (("few.avi", 10), ("many.avi", 300)):
            self.ffmpeg("-f", "lavfi", "-i", "color=size=640x360", "-frames:v", str(frames), "-c:v",
                        "mpeg4", name)
        _, few, _, many = map(int, (line.split()[0] for line in self.answers(
            ["video few.avi /dev/null", "memory", "video many.avi /dev/null", "memory"])))
        self.assertLess(many - few, 8 * 1024)  # KiB; 290 frames have 200 MB


if __name__ == "__main__":
    unittest.main()

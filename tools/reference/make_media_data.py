#!/usr/bin/env python3
"""Writes tests/data/media: small images and videos, and what Pillow and ffmpeg make of them.

    python tools/reference/make_media_data.py

NAME.ppm has the pixels of NAME (of a video: of all frames, one after the other), NAME.WIDTHxHEIGHT.ppm
those of the resized image, NAME.WIDTHxHEIGHT.bicubic.ppm with another kernel. Needs Pillow before version 13, which resizes columns first, and ffmpeg
5.1.
"""
import pathlib
import random
import subprocess
import sys

import PIL
from PIL import Image, ImageOps

SOURCE = pathlib.Path(__file__).parents[2]
FOLDER = SOURCE / "tests" / "data" / "media"
sys.path.insert(0, str(SOURCE / "tests" / "media"))
from png_files import GREY, PALETTE, RGBA, chunk, exif, png, xmp  # noqa: E402

SIZES = [(48, 32), (13, 40), (7, 5), (29, 9)]


def samples(top, channels):
    return [[tuple(random.randrange(top) for _ in range(channels)) for _ in range(11)]
            for _ in range(7)]


def ffmpeg(*words):
    return subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-y", *words], check=True,
                          stdout=subprocess.PIPE).stdout


def images():
    random.seed(1)
    noise = Image.frombytes("RGB", (29, 22), random.randbytes(29 * 22 * 3))
    picture = Image.blend(Image.linear_gradient("L").resize((29, 22)).convert("RGB"), noise, 0.2)
    picture.save(FOLDER / "turned.jpg", quality=85, exif=b"Exif\0\0" + exif(6))
    picture.save(FOLDER / "progressive.jpg", progressive=True, subsampling=1)
    picture.convert("L").save(FOLDER / "grey.jpg")
    colours = chunk(b"PLTE", random.randbytes(3 * 16)) + chunk(b"tRNS", b"\0\x80")
    return {"palette.png": png(samples(16, 1), 4, PALETTE, before=colours),
            "grey_16_bits.png": png(samples(600, 1), 16, GREY),
            "interlaced_rgba.png": png(samples(65536, 4), 16, RGBA, True),
            "late_exif.png": png(samples(256, 3), after=chunk(b"eXIf", exif(3, ">"))),
            "xmp.png": png(samples(256, 3), before=chunk(
                b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(5)))}


def videos():
    test = ["-f", "lavfi", "-i", "testsrc2=size=32x24:rate=8", "-frames:v", "4", "-threads", "1"]
    exact = ["-fflags", "+bitexact", "-flags:v", "+bitexact"]
    upright = FOLDER / "upright.mp4"
    ffmpeg(*test, "-c:v", "libx264", "-pix_fmt", "yuv420p", *exact, upright)
    ffmpeg("-i", upright, "-c", "copy", "-metadata:s:v:0", "rotate=90", *exact, FOLDER / "turned.mp4")
    ffmpeg(*test, "-vf", "scale=33:25", "-c:v", "ffv1", "-pix_fmt", "yuv420p", *exact,
           FOLDER / "odd.mkv")
    return ["upright.mp4", "turned.mp4", "odd.mkv"]


def main():
    if int(PIL.__version__.split(".")[0]) >= 13:
        sys.exit(f"Pillow {PIL.__version__} was found, a version before 13 is needed")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in images().items():
        (FOLDER / name).write_bytes(data)
    for path in sorted([*FOLDER.glob("*.png"), *FOLDER.glob("*.jpg")]):
        image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
        image.save(f"{path}.ppm")
        if path.name == "turned.jpg":
            for width, height in SIZES:
                for kernel in (Image.Resampling.LANCZOS, Image.Resampling.BICUBIC):
                    resized = image.resize((width, height), kernel)
                    name = "" if kernel == Image.Resampling.LANCZOS else ".bicubic"
                    resized.save(f"{path}.{width}x{height}{name}.ppm")
    for name in videos():
        frames = ffmpeg("-i", FOLDER / name, "-fps_mode", "passthrough", "-f", "image2pipe", "-c:v",
                        "ppm", "-pix_fmt", "rgb24", "-")
        (FOLDER / f"{name}.ppm").write_bytes(frames)


if __name__ == "__main__":
    main()

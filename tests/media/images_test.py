#!/usr/bin/python3
"""Images of all kinds have the bytes that Pillow gives: decoded, turned as their EXIF data says, and
resized. Skipped where Pillow is not installed."""
import io
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
import zlib

try:
    import numpy as np
    import PIL
    from PIL import Image, ImageOps
except ImportError:
    sys.exit(77)

import png_files
from png_files import GREY, GREY_ALPHA, PALETTE, RGB, RGBA, chunk, exif, png, xmp

PROGRAM = os.environ["REELMESH_MEDIA_BYTES"]
PILLOW = int(PIL.__version__.split(".")[0])


def reference(file):
    """As load_image of diffusers."""
    with Image.open(file) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def resized(image, size):
    """As versions of Pillow before 13: columns first. Pillow 13 begins with the rows where the height
    shrinks by more than twice as many pixels as the width."""
    if PILLOW >= 13:
        image = image.resize((size[0], image.height), Image.Resampling.LANCZOS)
    return image.resize(size, Image.Resampling.LANCZOS)


def picture(width, height, seed=0):
    """RGB with edges, gradients and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    planes = [(x * 255 // max(width - 1, 1)), (y * 255 // max(height - 1, 1)),
              ((x // 3 + y // 5) % 2) * 255]
    noise = rng.integers(-20, 20, (height, width, 3))
    return np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)


def samples(width, height, depth, colour, colours=256, seed=0):
    random.seed(seed)
    top = min(2 ** depth, colours if colour == PALETTE else 2 ** 16)
    return [[tuple(random.randrange(top) for _ in range(png_files.CHANNELS[colour]))
             for _ in range(width)] for _ in range(height)]


def jpeg(array, **options):
    file = io.BytesIO()
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    image.save(file, "JPEG", **options)
    return file.getvalue()


def with_segment(data, content):
    """A JPEG file with one more APP1 segment."""
    size = (len(content) + 2).to_bytes(2, "big")
    return data[:2] + b"\xff\xe1" + size + content + data[2:]


def palette(colours):
    random.seed(colours)
    return chunk(b"PLTE", bytes(random.randrange(256) for _ in range(3 * colours)))


def png_cases():
    kinds = [(depth, GREY) for depth in (1, 2, 4, 8, 16)]
    kinds += [(depth, PALETTE) for depth in (1, 2, 4, 8)]
    kinds += [(depth, colour) for colour in (RGB, RGBA, GREY_ALPHA) for depth in (8, 16)]
    for depth, colour in kinds:
        before = palette(2 ** depth) if colour == PALETTE else b""
        transparent = {GREY: b"\0\1", RGB: bytes(6), PALETTE: b"\0\x80"}.get(colour)
        for interlaced in (False, True):
            for width, height in ((1, 1), (13, 9), (40, 3)):
                pixels = samples(width, height, depth, colour)
                name = f"png {depth} bits, colour {colour}, {width} x {height}, {interlaced}"
                yield name, png(pixels, depth, colour, interlaced, before, kind=2 * interlaced)
            if transparent:
                yield name + ", tRNS", png(pixels, depth, colour, interlaced,
                                           before + chunk(b"tRNS", transparent))
    grey = [[(value,) for value in (0, 1, 254, 255, 256, 257, 511, 512, 0x7fff, 0xff00, 0xffff)]]
    yield "png 16-bit grey values", png(grey, 16, GREY)
    yield "png short palette", png(samples(9, 9, 8, PALETTE, colours=5), 8, PALETTE,
                                   before=palette(5))
    pixels = samples(7, 4, 8, RGB)
    yield "png sRGB, gAMA", png(pixels, before=chunk(b"gAMA", b"\0\0\x30\0") + chunk(b"sRGB", b"\0"))
    yield "png sBIT", png(pixels, before=chunk(b"sBIT", b"\5\6\5"))
    yield "png unknown chunk", png(pixels, before=chunk(b"abCd", b"text"), after=chunk(b"tEXt", b"a\0b"))
    yield "png one image of an animation", png(pixels, before=chunk(b"acTL", bytes([0, 0, 0, 1] + [0] * 4)))
    yield "png bytes after its end", png(pixels) + b"more"


def turned_cases():
    pixels = samples(7, 4, 8, RGB)
    base = jpeg(picture(37, 22))
    # Pillow 9.4 and 11.1 do not turn JPEG files as XMP says.
    turns = with_segment(base, b"http://ns.adobe.com/xap/1.0/\0" + xmp(6))
    turns = reference(io.BytesIO(turns)).size == (22, 37)
    for orientation in range(10):
        for order, kind in (("<", 3), (">", 3), (">", 4), ("<", 9)):
            data = exif(orientation, order, kind)
            name = f"orientation {orientation} {order} {kind}"
            yield f"jpeg {name}", jpeg(picture(37, 22), exif=b"Exif\0\0" + data)
            yield f"png {name}", png(pixels, before=chunk(b"eXIf", data))
        yield f"png late {orientation}", png(pixels, after=chunk(b"eXIf", exif(orientation)))
        for attribute in (True, False):
            text = xmp(orientation, attribute)
            name = f"xmp {orientation} {attribute}"
            if turns:
                yield f"jpeg {name}", with_segment(base, b"http://ns.adobe.com/xap/1.0/\0" + text)
            yield f"png {name}", png(pixels, before=chunk(
                b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + text))
            yield f"png compressed {name}", png(pixels, before=chunk(
                b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(text)))
        hexadecimal = (b"Exif\0\0" + exif(orientation)).hex()
        profile = f"Raw profile type exif\0\nexif\n{len(hexadecimal) // 2:8}\n{hexadecimal}\n"
        yield f"png profile {orientation}", png(pixels, before=chunk(b"tEXt", profile.encode()))
    both = with_segment(jpeg(picture(9, 5), exif=b"Exif\0\0" + exif(6)),
                        b"http://ns.adobe.com/xap/1.0/\0" + xmp(3))
    yield "jpeg EXIF before XMP", both


def jpeg_cases():
    for width, height in ((1, 1), (16, 16), (37, 22), (101, 67), (2, 31)):
        pixels = picture(width, height)
        for subsampling in (0, 1, 2):
            for progressive in (False, True):
                yield (f"jpeg {width} x {height} 4:{subsampling} {progressive}",
                       jpeg(pixels, subsampling=subsampling, progressive=progressive, quality=70))
        yield f"jpeg grey {width} x {height}", jpeg(Image.fromarray(pixels).convert("L"))
        yield f"jpeg quality 5 {width} x {height}", jpeg(pixels, quality=5)
        yield f"jpeg optimized {width} x {height}", jpeg(pixels, quality=100, optimize=True)
    first = jpeg(picture(20, 10))
    yield "jpeg bytes after its end", first + b"more"
    pictures = io.BytesIO()
    images = [Image.fromarray(picture(20, 10, seed)) for seed in (1, 2)]
    images[0].save(pictures, "MPO", save_all=True, append_images=images[1:])
    yield "jpeg of two pictures (MPO)", pictures.getvalue()


def saved(array, kind, **options):
    file = io.BytesIO()
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    image.save(file, kind, **options)
    return file.getvalue()


def other_cases():
    for width, height in ((1, 1), (37, 22), (101, 67)):
        pixels = picture(width, height)
        image = Image.fromarray(pixels)
        alpha = image.copy()
        alpha.putalpha(Image.fromarray(pixels[:, :, 1]))
        size = f"{width} x {height}"
        yield f"jpeg CMYK {size}", jpeg(image.convert("CMYK"))
        yield f"jpeg CMYK progressive {size}", jpeg(image.convert("CMYK"), progressive=True)
        for mode in ("RGB", "L", "P", "1"):
            yield f"bmp {mode} {size}", saved(image.convert(mode), "BMP")
        for mode in ("RGB", "L", "P"):
            for packed in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
                yield (f"tiff {mode} {packed} {size}",
                       saved(image.convert(mode), "TIFF", compression=packed))
        yield f"tiff RGBA {size}", saved(alpha, "TIFF")
        yield f"webp lossless {size}", saved(image, "WEBP", lossless=True)
        yield f"webp lossless RGBA {size}", saved(alpha, "WEBP", lossless=True, exact=True)
        yield f"gif {size}", saved(image, "GIF")
        yield f"gif of 3 frames {size}", saved(image, "GIF", save_all=True, append_images=[
            Image.fromarray(picture(width, height, seed)) for seed in (1, 2)])
    upright = Image.fromarray(picture(37, 22))
    for orientation in range(1, 9):
        tags = Image.Exif()
        tags[0x0112] = orientation
        if PILLOW >= 11 or orientation == 1:  # earlier versions turn them twice
            yield f"tiff orientation {orientation}", saved(upright, "TIFF", exif=tags)
        yield f"webp orientation {orientation}", saved(upright, "WEBP", lossless=True, exif=tags)


def lossy_cases():
    """Pillow and FFmpeg enlarge the colours of these in other ways. Mean differences are 0.6 levels
    of even sizes, 2.2 of odd ones, to which FFmpeg stretches the colours."""
    for width, height in ((96, 64), (102, 68), (101, 67)):
        smooth = Image.fromarray(picture(9, 6)).resize((width, height), Image.Resampling.BICUBIC)
        for quality in (30, 90):
            yield f"webp {quality} {width}", saved(smooth, "WEBP", quality=quality)
            if "AVIF" in Image.SAVE:
                yield f"avif {quality} {width}", saved(smooth, "AVIF", quality=quality)


# From and to: up, down, both, odd, one pixel, extreme, and one side as it is.
SIZES = [((64, 48), (128, 96)), ((64, 48), (32, 24)), ((64, 48), (64, 24)), ((64, 48), (31, 48)),
         ((64, 48), (64, 48)), ((720, 480), (96, 64)), ((97, 61), (53, 111)), ((97, 61), (111, 53)),
         ((1, 1), (7, 5)), ((7, 5), (1, 1)), ((1, 90), (33, 2)), ((90, 1), (2, 33)),
         ((1000, 3), (3, 1000)), ((3, 1000), (1000, 3)), ((2, 2), (500, 1)), ((1, 500), (2, 2)),
         ((513, 257), (512, 256)), ((512, 256), (513, 257)), ((255, 255), (17, 13)),
         ((17, 13), (255, 255)), ((640, 360), (720, 480)), ((1280, 720), (720, 480)),
         ((333, 500), (720, 480)), ((1500, 20), (100, 20)), ((1500, 20), (1499, 19)),
         ((5, 4), (4, 5)), ((10, 10), (11, 9)), ((10, 10), (9, 11)), ((2000, 1), (1, 1)),
         ((100, 101), (99, 3)), ((31, 37), (62, 74)), ((31, 37), (93, 111)), ((6, 2), (3, 1)),
         ((1360, 768), (48, 80)), ((49, 81), (1360, 768))]


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="reelmesh_images_")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def compare(self, cases, levels=0):
        """cases: name, bytes of the file, and the size to resize to or None. levels: how much the
        mean value may differ."""
        lines = []
        for i, (_, data, size) in enumerate(cases):
            (self.folder / f"{i}.in").write_bytes(data)
            line = f"{self.folder}/{i}.in {self.folder}/{i}.out"
            lines.append(f"resize {line} {size[1]} {size[0]}" if size else f"image {line}")
        done = subprocess.run([PROGRAM], input="\n".join(lines), stdout=subprocess.PIPE, text=True,
                              check=True)
        answers = done.stdout.splitlines()
        self.assertEqual(len(answers), len(cases))
        for i, (name, _, size) in enumerate(cases):
            with self.subTest(name):
                expected = reference(self.folder / f"{i}.in")
                if size:
                    expected = resized(expected, size)
                self.assertEqual(answers[i], f"{expected.height} {expected.width}")
                found = (self.folder / f"{i}.out").read_bytes()
                self.assertEqual(len(found), len(expected.tobytes()))
                values = [np.frombuffer(bytes_of, np.uint8).astype(int)
                          for bytes_of in (found, expected.tobytes())]
                difference = np.abs(values[0] - values[1])
                if levels:
                    self.assertLessEqual(difference.mean(), levels)
                else:
                    self.assertEqual(np.count_nonzero(difference), 0, difference.max())

    def decoded(self, cases):
        self.compare([(name, data, None) for name, data in cases])

    def test_png(self):
        self.decoded(png_cases())

    def test_jpeg(self):
        self.decoded(jpeg_cases())

    def test_turned(self):
        self.decoded(turned_cases())

    def test_other_formats(self):
        self.decoded(other_cases())

    def test_formats_with_losses(self):
        self.compare([(name, data, None) for name, data in lossy_cases()], levels=3)

    def test_resized(self):
        cases = []
        for i, ((width, height), size) in enumerate(SIZES):
            array = picture(width, height, seed=i)
            if i % 3 == 1:  # noise: sums that are clipped
                array = np.random.default_rng(i).integers(0, 2, array.shape, np.uint8) * 255
            file = io.BytesIO()
            Image.fromarray(array).save(file, "PNG")
            cases.append((f"{width} x {height} to {size}", file.getvalue(), size))
        kinds = [(name, data) for name, data in [*png_cases(), *turned_cases()] if "13 x 9" in name or
                 "orientation 6" in name]
        cases += [(name + " resized", data, (20, 31)) for name, data in kinds]
        self.assertGreaterEqual(len(cases), 60)
        self.compare(cases)


if __name__ == "__main__":
    unittest.main()

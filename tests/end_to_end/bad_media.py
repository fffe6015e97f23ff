"""Images and videos that must be refused, each with the exit status and a part of the message."""
import dataclasses
import io
import os
import pathlib
import struct
import subprocess
import sys
import zlib

from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "media"))
from png_files import GREY, PALETTE, SIGNATURE, chunk, header, png

DATA_ERROR, NO_INPUT = 65, 66


@dataclasses.dataclass
class BadFile:
    name: str
    path: pathlib.Path
    kind: str  # image or video
    status: int
    message: str  # a part of it


def picture(width=64, height=48):
    return Image.linear_gradient("L").resize((width, height)).convert("RGB")


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def with_bytes(data, at, replacement):
    return data[:at] + replacement + data[at + len(replacement):]


def flipped(data, at):
    return with_bytes(data, at, bytes([data[at] ^ 0xff]))


def ffmpeg(output, *options, size="64x48", rate=8, frames=6):
    """A video of a test picture."""
    subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-y", "-f", "lavfi",
                    "-i", f"testsrc2=size={size}:rate={rate}", "-frames:v", str(frames),
                    "-threads", "1", *options, output], check=True)
    return output.read_bytes()


def png_images():
    rows = [[(x, y, x ^ y) for x in range(40)] for y in range(30)]
    whole = png(rows)
    data, end = whole.index(b"IDAT"), whole.index(b"IEND")
    truncated = "damaged PNG file: it ends too early"
    yield "png_signature_only", SIGNATURE, truncated
    yield "png_cut_in_its_header", whole[:20], truncated
    yield "png_cut_before_its_pixels", whole[:data - 4], truncated
    yield "png_cut_in_its_pixels", whole[:data + 60], truncated
    yield "png_cut_before_its_end", whole[:end - 4], truncated
    yield "png_cut_in_its_end", whole[:-2], truncated
    yield "png_wrong_crc_of_its_header", flipped(whole, 30), "IHDR: CRC error"
    yield "png_wrong_crc_of_its_pixels", flipped(whole, end - 6), "IDAT: CRC error"
    text = png(rows, before=chunk(b"tEXt", b"a\0bcd"))
    yield "png_wrong_crc_of_a_text", flipped(text, text.index(b"bcd")), "tEXt: CRC error"
    yield "png_without_pixels", SIGNATURE + header(40, 30) + chunk(b"IEND", b""), "damaged PNG file"
    few = SIGNATURE + header(40, 30) + chunk(b"IDAT", zlib.compress(bytes(121 * 29)))
    yield "png_with_a_row_too_few", few + chunk(b"IEND", b""), "Not enough image data"
    noise = SIGNATURE + header(40, 30) + chunk(b"IDAT", b"\x78\x9c" + bytes(range(200)))
    yield "png_with_a_damaged_stream", noise + chunk(b"IEND", b""), "damaged PNG file"
    indices = [[(9,)] * 5] * 5
    yield "png_without_its_palette", png(indices, 8, PALETTE), "damaged PNG file"
    yield ("png_colour_outside_its_palette", png(indices, 8, PALETTE, before=chunk(b"PLTE", bytes(27))),
           "a pixel has colour 9 of a palette of 9")
    animated = chunk(b"acTL", struct.pack(">II", 3, 0))
    yield "png_animated", png(rows, before=animated), "an animated PNG file (3 images)"

    def with_header(*sizes, **options):
        return SIGNATURE + header(*sizes, **options) + whole[data - 4:]
    yield "png_60000_x_60000", with_header(60000, 60000), "60000 x 60000 pixels"
    yield "png_100000_x_1", with_header(100000, 1), "damaged PNG file"
    yield "png_0_x_30", with_header(0, 30), "damaged PNG file"
    yield "png_40_x_0", with_header(40, 0), "damaged PNG file"
    yield "png_too_short_for_its_size", with_header(13000, 13000), "cannot hold an image of 13000 x 13000"
    yield "png_of_3_bits", with_header(40, 30, depth=3, colour=GREY), "damaged PNG file"
    yield "png_of_unknown_colours", with_header(40, 30, colour=5), "damaged PNG file"
    long = SIGNATURE + header(40, 30) + struct.pack(">I", 1 << 30) + b"tEXtkey\0text"
    yield "png_with_a_text_of_a_gigabyte", long, "damaged PNG file"
    # What a zlib stream can hold, but the pixels are not there.
    bomb = zlib.compress(bytes(30_000_000), 9)
    yield ("png_bomb", SIGNATURE + header(60000, 59000) + chunk(b"IDAT", bomb) + chunk(b"IEND", b""),
           "60000 x 59000 pixels")


def jpeg_images():
    whole = saved(picture(), "JPEG", quality=95)
    frame, scan = whole.index(b"\xff\xc0"), whole.index(b"\xff\xda")
    tables = whole.index(b"\xff\xdb")

    def of_size(width, height):
        return with_bytes(whole, frame + 5, struct.pack(">HH", height, width))
    yield "jpeg_start_only", whole[:3], "damaged JPEG file"
    yield "jpeg_cut_in_its_header", whole[:frame + 6], "damaged JPEG file"
    yield "jpeg_cut_in_its_pixels", whole[:(scan + len(whole)) // 2], "damaged JPEG file"
    yield "jpeg_cut_before_its_end", whole[:-2], "damaged JPEG file"
    progressive = saved(picture(), "JPEG", progressive=True)
    yield "jpeg_progressive_cut", progressive[:-40], "damaged JPEG file"
    first = progressive.index(b"\xff\xda")
    second = progressive.index(b"\xff\xc4", first)
    scans = progressive[:first] + progressive[first:second] * 200 + progressive[second:]
    yield "jpeg_of_too_many_scans", scans, "too many scans"
    yield "jpeg_damaged", with_bytes(whole, scan + 30, b"\xff\xd0" * 20), "damaged JPEG file"
    yield "jpeg_without_tables", whole[:tables] + whole[frame:], "damaged JPEG file"
    yield "jpeg_65500_x_65500", of_size(65500, 65500), "65500 x 65500 pixels"
    yield "jpeg_65535_x_65535", of_size(65535, 65535), "damaged JPEG file"
    yield "jpeg_0_x_48", of_size(0, 48), "damaged JPEG file"
    yield "jpeg_64_x_0", of_size(64, 0), "damaged JPEG file"
    yield "jpeg_too_short_for_its_size", of_size(13000, 13000), "cannot hold an image of 13000 x 13000"
    yield "jpeg_of_12_bits", with_bytes(whole, frame + 4, b"\x0c"), "damaged JPEG file"


def other_images(video):
    not_read = "not an image that is read"
    bad = "damaged or truncated image"
    for kind, options in (("GIF", {}), ("WEBP", {"lossless": True}), ("BMP", {}), ("TIFF", {}),
                          ("TIFF", {"compression": "tiff_lzw"})):
        whole = saved(picture(), kind, **options)
        name = "_".join([kind.lower(), *options])
        yield f"{name}_cut", whole[:len(whole) // 2], ""
        yield f"{name}_start_only", whole[:16], ""
    frames = saved(picture(), "WEBP", save_all=True, append_images=[picture().rotate(90)])
    yield "webp_animated", frames, bad
    yield "photoshop", b"8BPS" + bytes(100), not_read + ", expected PNG, JPEG, WebP, GIF, BMP, TIFF"
    yield "web_page", b"<!DOCTYPE html><html></html>", "it is a web page"
    yield "lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"
    yield "text", b"not an image\n", not_read
    yield "program", pathlib.Path(sys.executable).read_bytes()[:1000], not_read
    yield "video", video, not_read
    yield "zeros", bytes(1000), not_read
    yield "five_bytes", b"RIFF ", not_read


def of_turned(data):
    """An MP4 file whose video is shown turned by 45 degrees."""
    track = data.index(b"tkhd")
    half = 46341  # the square root of 1/2, 16 bits after the point
    return with_bytes(data, track + 44, struct.pack(">9i", half, half, 0, -half, half, 0, 0, 0, 1 << 30))


def videos(folder):
    mp4 = ffmpeg(folder / "whole.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p")
    data = mp4.index(b"mdat")
    bad = "damaged or truncated video"
    yield "mp4_without_its_index", mp4[:mp4.index(b"moov") - 4], bad
    yield "mp4_cut_in_its_index", mp4[:mp4.index(b"stbl")], bad
    yield "mp4_start_only", mp4[:40], bad
    yield "mp4_damaged", with_bytes(mp4, data + 1000, b"\x55" * 600), bad
    yield "mp4_turned_by_45_degrees", of_turned(mp4), "frames are turned by"
    fast = ffmpeg(folder / "fast.mp4", "-c:v", "libx264", "-movflags", "faststart")
    yield "mp4_cut_in_its_frames", fast[:-300], bad
    counts = fast.index(b"stsz") + 12  # the number of frames
    yield "mp4_of_too_many_frames_in_its_index", with_bytes(fast, counts - 4, struct.pack(
        ">II", 1, 50_000_000)), "the video has no frames"
    mkv = ffmpeg(folder / "whole.mkv", "-c:v", "ffv1", "-level", "3", "-slicecrc", "1")
    yield "mkv_cut", mkv[:len(mkv) // 2], bad
    yield "mkv_without_frames", mkv[:mkv.index(b"\x1f\x43\xb6\x75")], bad
    yield "mkv_damaged", with_bytes(mkv, len(mkv) // 2, bytes(50)), bad
    avi = ffmpeg(folder / "raw.avi", "-c:v", "rawvideo", "-pix_fmt", "bgr24", frames=2)
    sizes = avi.index(b"strf") + 12
    yield "avi_of_20000_x_20000", with_bytes(avi, sizes, struct.pack("<ii", 20000, 20000)), "20000"
    yield "avi_of_0_x_0", with_bytes(avi, sizes, bytes(8)), bad
    many = ffmpeg(folder / "many.avi", "-c:v", "mpeg4", size="16x16", rate=1000, frames=10_001)
    yield "avi_of_10001_frames", many, "expected at most"
    small = ffmpeg(folder / "small.ts", "-c:v", "mpeg2video")
    large = ffmpeg(folder / "large.ts", "-c:v", "mpeg2video", size="128x96")
    yield "ts_whose_size_changes", small + large, bad
    yield "codec_that_is_not_read", ffmpeg(folder / "flv.avi", "-c:v", "flv"), "coded as flv1"
    yield "format_that_is_not_read", ffmpeg(folder / "whole.nut", "-c:v", "ffv1"), "its format is nut"
    sound = folder / "sound.m4a"
    subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-y", "-f", "lavfi", "-i", "sine", "-t",
                    "0.2", "-c:a", "aac", sound], check=True)
    yield "sound_only", sound.read_bytes(), "it has no video stream"

    not_read = "not a video that is read"
    other = folder / "whole.mp4"
    yield "playlist.m3u8", (f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{other}\n"
                            "#EXT-X-ENDLIST\n").encode(), not_read
    yield "list.ffconcat", f"ffconcat version 1.0\nfile '{other}'\n".encode(), not_read
    yield "session.sdp", (b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=a\nc=IN IP4 127.0.0.1\n"
                          b"m=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"), not_read
    yield "picture_%03d.png", saved(picture(), "PNG"), not_read
    yield "text.mp4", b"not a video\n" * 100, not_read
    yield "zeros.mp4", bytes(100_000), not_read
    yield "program.mp4", pathlib.Path(sys.executable).read_bytes()[:10_000], not_read


def bad_media(folder):
    """Makes the files in a folder -> a list of BadFile. Needs the command ffmpeg; 2 s."""
    found = []

    def add(name, kind, status, message):
        found.append(BadFile(name, folder / name, kind, status, message))

    def write(files, kind, ending=""):
        for name, data, message in files:
            (folder / (name + ending)).write_bytes(data)
            add(name + ending, kind, DATA_ERROR, message)
    write(videos(folder), "video")
    write(png_images(), "image", ".png")
    write(jpeg_images(), "image", ".jpg")
    write(other_images((folder / "whole.mp4").read_bytes()), "image", ".image")
    for kind, limit in (("image", 1 << 30), ("video", 1 << 34)):
        add(f"missing_{kind}", kind, NO_INPUT, "cannot be opened: No such file")
        (folder / f"empty_{kind}").touch()
        add(f"empty_{kind}", kind, DATA_ERROR, "the file is empty")
        (folder / f"folder_{kind}").mkdir()
        add(f"folder_{kind}", kind, DATA_ERROR, "not a regular file")
        os.mkfifo(folder / f"pipe_{kind}")
        add(f"pipe_{kind}", kind, DATA_ERROR, "not a regular file")
        with open(folder / f"long_{kind}", "wb") as file:  # without taking that much of the disk
            file.write(SIGNATURE)
            file.truncate(limit + 1)
        add(f"long_{kind}", kind, DATA_ERROR, "expected at most")
    return found

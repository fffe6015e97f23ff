#!/usr/bin/env python3
"""Two videos with captions to train on, of any size, made by Python alone.

    tests/gpu/make_clips.py FOLDER HEIGHT WIDTH FRAMES

FOLDER gets 0.avi and 1.avi (lossless PNG frames, 8 a second), on which a gradient moves, and their
captions in 0.txt and 1.txt.
"""
import pathlib
import struct
import sys
import zlib

RATE = 8


def chunk(name, content):
    """Of a RIFF file."""
    return name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


def png(height, width, line):
    """Of rows that are all equal."""
    def part(name, content):
        return (struct.pack(">I", len(content)) + name + content
                + struct.pack(">I", zlib.crc32(name + content)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # RGB
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header)
            + part(b"IDAT", zlib.compress((b"\0" + line) * height, 1)) + part(b"IEND", b""))


def avi(height, width, frames):
    largest = max(map(len, frames))
    main = struct.pack("<14I", 1000000 // RATE, 0, 0, 0, len(frames), 0, 1, largest, width, height,
                       0, 0, 0, 0)
    stream = struct.pack("<4s4sIHHIIIIIIII4H", b"vids", b"MPNG", 0, 0, 0, 0, 1, RATE, 0,
                         len(frames), largest, 0xFFFFFFFF, 0, 0, 0, width, height)
    picture = struct.pack("<IiiHH4sIiiII", 40, width, height, 1, 24, b"MPNG", 3 * width * height,
                          0, 0, 0, 0)
    headers = chunk(b"LIST", b"hdrl" + chunk(b"avih", main) + chunk(
        b"LIST", b"strl" + chunk(b"strh", stream) + chunk(b"strf", picture)))
    movie = chunk(b"LIST", b"movi" + b"".join(chunk(b"00dc", frame) for frame in frames))
    return chunk(b"RIFF", b"AVI " + headers + movie)


def main(folder, height, width, count):
    folder.mkdir(parents=True, exist_ok=True)
    captions = ("a blue wave moves to the left", "a yellow wave moves to the right")
    for clip, caption in enumerate(captions):
        line = b"".join(bytes((x % 256, x % 256, 255 - x % 256))
                        for x in range(width + 4 * count))
        starts = range(0, 4 * count, 4)
        frames = [png(height, width, line[3 * start:3 * (start + width)])
                  for start in (reversed(starts) if clip else starts)]
        (folder / f"{clip}.avi").write_bytes(avi(height, width, frames))
        (folder / f"{clip}.txt").write_text(caption + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:5]))

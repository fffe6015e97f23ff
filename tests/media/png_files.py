"""PNG files of all kinds, also those that Pillow does not write."""
import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
# Adam7: first column and row, steps
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
          (0, 1, 1, 2)]


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def header(width, height, depth=8, colour=RGB, interlaced=False):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))


def packed_rows(samples, depth):
    """samples: rows of lists of values -> the bytes of each row."""
    for row in samples:
        if depth == 16:
            yield struct.pack(f">{len(row)}H", *row)
        elif depth == 8:
            yield bytes(row)
        else:
            bits = "".join(f"{value:0{depth}b}" for value in row)
            bits += "0" * (-len(bits) % 8)
            yield int(bits, 2).to_bytes(len(bits) // 8, "big")


def filtered(rows, kind):
    """Scan lines, all with filter 0 or 2 (difference from the row above)."""
    above = None
    for row in rows:
        line = row
        if kind == 2 and above is not None:
            line = bytes((a - b) % 256 for a, b in zip(row, above))
        yield bytes([kind]) + line
        above = row


def png(samples, depth=8, colour=RGB, interlaced=False, before=b"", after=b"", kind=0):
    """samples: rows of pixels, each a tuple of values. before, after: chunks around IDAT."""
    height, width = len(samples), len(samples[0])
    passes = PASSES if interlaced else [(0, 0, 1, 1)]
    data = b""
    for x, y, across, down in passes:
        part = [row[x::across] for row in samples[y::down]]
        if part and part[0]:
            rows = packed_rows([[v for pixel in row for v in pixel] for row in part], depth)
            data += b"".join(filtered(rows, kind))
    return (SIGNATURE + header(width, height, depth, colour, interlaced) + before
            + chunk(b"IDAT", zlib.compress(data)) + after + chunk(b"IEND", b""))


def exif(orientation, order="<", kind=3):
    """EXIF data with an orientation only, of TIFF type `kind`."""
    start = b"II*\0" if order == "<" else b"MM\0*"
    value = struct.pack(order + ("H2x" if kind == 3 else "I"), orientation)
    return (start + struct.pack(order + "IH", 8, 1) + struct.pack(order + "HHI", 0x112, kind, 1)
            + value + bytes(4))


def xmp(orientation, attribute=True):
    what = (f'tiff:Orientation="{orientation}"' if attribute
            else f"<tiff:Orientation>{orientation}</tiff:Orientation>")
    return f"<x:xmpmeta><rdf:Description {what}/></x:xmpmeta>".encode()

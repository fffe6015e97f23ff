#!/usr/bin/env python3
"""Writes a CUDA library without the machine code of other GPUs, so that it compresses to little.

    tests/gpu/one_architecture.py LIBRARY RESULT 90

In .nv_fatbin, and __nv_relfatbin with the linker's input, the code for other compute capabilities is
overwritten with zeros. Headers and addresses stay, so that the driver finds the code of its GPU as
before. Not tried on a GPU.
"""
import struct
import sys

MAGIC, CUBIN = 0xBA55ED50, 2


def sections(data):
    """name -> (offset, bytes) of the sections of a 64-bit ELF file."""
    table, = struct.unpack_from("<Q", data, 0x28)
    count, names = struct.unpack_from("<HH", data, 0x3C)
    headers = [struct.unpack_from("<IIQQQQ", data, table + 64 * i) for i in range(count)]
    found = {}
    for header in headers:
        first = headers[names][4] + header[0]
        found[data[first:data.index(0, first)].decode()] = header[4:6]
    return found


def clear(data, first, size, kept):
    """Zeros the entries of all fat binaries in a section, but machine code for `kept`. Returns the
    bytes that are left."""
    left, at = 0, first
    while at + 16 <= first + size:
        magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
        if magic != MAGIC:  # padding
            at += 8
            continue
        entry, end = at + header, at + header + length
        while entry < end:
            kind, _, head, body = struct.unpack_from("<HHIQ", data, entry)
            architecture, = struct.unpack_from("<I", data, entry + 28)
            if (kind, architecture) == (CUBIN, kept):
                left += body
            else:
                data[entry + head:entry + head + body] = bytes(body)
            entry += head + body
        at = end
    return left


def main(library, result, architecture):
    with open(library, "rb") as file:
        data = bytearray(file.read())
    for name, (first, size) in sections(data).items():
        if name in (".nv_fatbin", "__nv_relfatbin") and not clear(data, first, size,
                                                                  int(architecture)):
            print(f"{library}: {name} has no code for compute capability {architecture}",
                  file=sys.stderr)
            return 1
    with open(result, "wb") as file:
        file.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

#!/usr/bin/python3
"""Makes the inputs chunk_*.h5 of corpus/clip and corpus/restart from whole.h5: chunks that are
missing, or do not give as many bytes as their values take."""
import pathlib
import shutil
import zlib

import h5py

CORPUS = pathlib.Path(__file__).parent / "corpus"
ALL = 0b111  # filters left out


def make(target, array, name, left_out, content):
    """A copy in which the first chunk of an array has this content."""
    path = CORPUS / target / f"chunk_{name}.h5"
    shutil.copyfile(CORPUS / target / "whole.h5", path)
    with h5py.File(path, "r+") as file:
        dataset = file[array].id
        dataset.write_direct_chunk((0,) * dataset.rank, content, left_out)


def make_empty(target, array, shape):
    """A copy in which the array has this shape, and no chunk."""
    path = CORPUS / target / "chunk_missing.h5"
    shutil.copyfile(CORPUS / target / "whole.h5", path)
    with h5py.File(path, "r+") as file:
        old = file[array]
        creation, attributes = old.id.get_create_plist(), dict(old.attrs)
        creation.set_chunk((1, *shape[1:]))
        dtype = old.id.get_type()
        del file[array]
        made = h5py.h5d.create(file.id, array.encode(), dtype, h5py.h5s.create_simple(shape),
                               creation)
        h5py.Dataset(made).attrs["checksum"] = attributes["checksum"]


if __name__ == "__main__":
    make("clip", "video", "short", 0, b"xy")
    make("clip", "video", "short_not_deflated", 0b010, b"xy")
    make("clip", "video", "short_unfiltered", ALL, b"xy")
    make("restart", "latents", "short", 0, b"xy")
    make("restart", "latents", "short_unfiltered", 0b1, b"xy")
    make("clip", "video", "inflates_to_less", 0b101, zlib.compress(b"x"))
    make_empty("clip", "video", (50000, 1000, 1000, 3))
    make_empty("restart", "latents", (1, 4, 2, 3))

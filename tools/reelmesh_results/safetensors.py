"""Reads a .safetensors file that may be damaged or made by others: the length of the header as 8
bytes, little endian; the header in JSON; the values.
https://github.com/huggingface/safetensors#format"""
import dataclasses
import math
import os
import stat
import struct

import numpy as np

from . import strict_json
from .hdf5 import Damaged

TYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
MAX_HEADER = 64 << 20  # bytes


@dataclasses.dataclass
class Tensor:
    dtype: np.dtype
    shape: tuple
    begin: int  # bytes from the beginning of the file


class Safetensors:
    """An open file. `tensors`: name → Tensor, in the order of the values. Raises Damaged."""

    def __init__(self, path):
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer.
            self._file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        except FileNotFoundError as error:
            raise Damaged("no such file", 66) from error
        except OSError as error:
            raise Damaged(f"cannot be opened: {error.strerror}", 66) from error
        try:
            self.tensors = self._header()
        except BaseException:
            self._file.close()
            raise

    def _header(self):
        found = os.fstat(self._file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Damaged("not a regular file, expected a .safetensors file")
        length = self._file.read(8)
        if len(length) < 8:
            raise Damaged(f"has {len(length)} bytes, expected a .safetensors file")
        length = struct.unpack("<Q", length)[0]
        if length > min(MAX_HEADER, found.st_size - 8):
            raise Damaged(f"its header has {length} bytes, which a .safetensors file of "
                          f"{found.st_size} bytes cannot have")
        try:
            header = strict_json.parse(self._file.read(length))
            named = {name: self._tensor(one, 8 + length) for name, one in header.items()
                     if name != "__metadata__"}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Damaged(f"its header is not that of a .safetensors file: {error}") from error
        end = 8 + length
        for name, one in sorted(named.items(), key=lambda pair: pair[1].begin):
            if one.begin != end:
                raise Damaged(f"{name} begins at byte {one.begin}, expected {end}")
            end += math.prod(one.shape) * one.dtype.itemsize
        if end != found.st_size:
            raise Damaged(f"has {found.st_size} bytes, expected {end}")
        return dict(sorted(named.items(), key=lambda pair: pair[1].begin))

    @staticmethod
    def _tensor(one, values):
        if one["dtype"] not in TYPES:
            raise ValueError(f"found dtype {one['dtype']}, expected {', '.join(TYPES)}")
        dtype, shape = TYPES[one["dtype"]], tuple(one["shape"])
        begin, end = one["data_offsets"]
        if not all(type(value) is int and 0 <= value < 2 ** 62 for value in (*shape, begin, end)):
            raise ValueError("shapes and offsets must be whole numbers from 0 on")
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{end - begin} bytes do not hold {dtype} {list(shape)}")
        return Tensor(dtype, shape, values + begin)

    def blocks(self, name, size):
        """Yields (index of the first value, values as they are stored, one after the other), of
        about `size` bytes."""
        one = self.tensors[name]
        count, step = math.prod(one.shape), max(1, size // one.dtype.itemsize)
        for at in range(0, count, step):
            here = min(step, count - at)
            self._file.seek(one.begin + at * one.dtype.itemsize)
            values = self._file.read(here * one.dtype.itemsize)
            if len(values) < here * one.dtype.itemsize:
                raise Damaged(f"{name} ends early: the file has become shorter")
            yield at, np.frombuffer(values, one.dtype)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

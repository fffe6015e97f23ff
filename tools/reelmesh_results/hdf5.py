"""Opens result files, and says what is wrong with files that cannot be used.

Files may be damaged or made by others. Nothing outside of a file is read on its behalf: links,
external storage and virtual datasets are refused. HDF5 1.10 trusts what a file says, so sizes are
compared with the file before it reads values, and chunks with the sizes of their values.
"""
import contextlib
import itertools
import math
import zlib

import h5py
import numpy as np

from .errors import Error, fail

FORMAT_VERSION = 2  # from 2 on tables are groups of columns; clips and metrics have 1
MAX_READ = 1 << 30  # bytes that are read at a time, 178 million pixels and more
MAX_TEXTS = 256 << 20  # bytes of all requests
MAX_INFLATED = 1100  # how many times as long as its stored bytes deflated data may be
FILTERS = {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_FLETCHER32}
# Columns of texts, or of numbers with flag_meanings; numpy's kinds of them.
TEXTS = ("host", "role", "device", "processor", "driver", "kernels", "reason")
NAMES = ("lane", "name", "place", "purpose", "state")
KINDS = dict.fromkeys(TEXTS, "SO") | dict.fromkeys(NAMES, "iuS")
# What h5py raises for damaged files.
ERRORS = (AttributeError, KeyError, OSError, OverflowError, RuntimeError, TypeError, ValueError)


class Damaged(Error):
    """A file that is missing, cannot be read, or has unexpected content."""


@contextlib.contextmanager
def or_fail(path):
    """Raises an Error that names the file if what is done with it raises Damaged."""
    try:
        yield
    except Damaged as error:
        fail(error.status, f"{path}: {error}")


def text(value):
    """A text attribute or column as str; earlier files have fixed-length strings, read as bytes.
    h5py gives bytes that are not UTF-8 as surrogates, which cannot be printed."""
    return (value.decode(errors="replace") if isinstance(value, bytes)
            else str(value).encode(errors="replace").decode())


def row_as_dict(row):
    """A row of a table, texts as str and numbers as Python's."""
    return {name: (text(bytes(row[name]).rstrip(b"\0")) if row.dtype[name].kind == "S"
                   else row[name] if row.dtype[name].kind == "O" else row[name].item())
            for name in row.dtype.names}


def attributes(thing):
    """The attributes of a file, group or dataset, texts as str. Raises Damaged."""
    try:
        return {name: text(value) if isinstance(value, (bytes, str)) else value
                for name, value in thing.attrs.items()}
    except ERRORS as error:
        raise Damaged(f"its attributes cannot be read: {error}") from error


def opened(path):
    """The file, open for reading. Raises Damaged."""
    if not path.exists():
        raise Damaged("no such file", 66)
    try:
        if not path.is_file():
            raise Damaged("not a regular file, expected an HDF5 file of reelmesh")
        if path.stat().st_size == 0:
            raise Damaged("the file is empty, expected an HDF5 file of reelmesh")
        file = h5py.File(path, "r")
    except PermissionError as error:
        raise Damaged("no permission to read it", 66) from error
    except OSError as error:
        raise Damaged(f"not a readable HDF5 file: {error}") from error
    try:
        _check_version(file)
    except BaseException:
        file.close()
        raise
    return file


def _check_version(file):
    version = attributes(file).get("format_version", FORMAT_VERSION)
    try:
        known = 1 <= int(version) <= FORMAT_VERSION
    except (TypeError, ValueError) as error:
        raise Damaged(f"its format_version is not a number: {error}") from error
    if not known:
        raise Damaged(f"is of format version {version}, this tool reads up to {FORMAT_VERSION}: "
                      "use the tools of the reelmesh that wrote it")


def _own(file, name):
    """The group or dataset of this path in the file itself; None if there is none."""
    found = file
    try:
        for part in name.split("/"):
            link = found.get(part, getlink=True) if isinstance(found, h5py.Group) else None
            if link is None:
                return None
            if not isinstance(link, h5py.HardLink):
                raise Damaged(f"/{name} is a link to another place, expected it in the file itself")
            found = found[part]
    except ERRORS as error:
        raise Damaged(f"/{name} cannot be read: {error}") from error
    return found


def group(file, name):
    """The group of this name; None if there is none. Raises Damaged."""
    found = _own(file, name)
    if found is not None and not isinstance(found, h5py.Group):
        raise Damaged(f"/{name} is not a group")
    return found


class Columns:
    """A table whose columns are datasets of a group, and are read as a compound dataset is: `dtype`
    is that of its rows, with the columns `first` first; texts are objects (str)."""

    def __init__(self, file, path, first):
        self.name, self.chunks = f"/{path}", None
        names = list(group(file, path))
        found = {name: _own(file, f"{path}/{name}")
                 for name in dict.fromkeys([name for name in first if name in names] + names)}
        self._texts = {name: column for name, column in found.items() if _has_texts(column)}
        self._numbers = {name: dataset(file, f"{path}/{name}") for name, column in found.items()
                         if name not in self._texts and not _is_dimension(column)}
        columns = {name: column for name, column in found.items()
                   if name in self._texts or name in self._numbers}
        for name, column in columns.items():
            if len(column.shape or ()) != 1 or (name in self._numbers and column.dtype.names):
                raise Damaged(f"{self.name}/{name} is not a column")
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1:
            raise Damaged(f"{self.name} has columns of {len(lengths)} lengths, expected one")
        self.shape = (lengths.pop(),)
        self.dtype = np.dtype([(name, "O" if name in self._texts else column.dtype)
                               for name, column in columns.items()])

    def __len__(self):
        return self.shape[0]

    def read(self, rows, names):
        """The rows of a slice as a structured array, with these columns, or all."""
        names = names or self.dtype.names
        first, last, _ = rows.indices(len(self))
        made = np.empty(max(last - first, 0), [(name, self.dtype[name]) for name in names])
        for name in names:
            if name in self._texts:
                values = np.empty(len(made), "O")
                values[:] = list(texts_of(self._texts[name]))[first:last]
                made[name] = values
            else:
                made[name] = read(self._numbers[name], rows)
        return made

    def meanings(self, column):
        """The words of an enumeration, by number."""
        words = str(attributes(self._numbers[column]).get("flag_meanings", "")).split() \
            if column in self._numbers else []
        return dict(enumerate(words))


def _has_texts(column):
    """Whether this is a dataset of texts of variable length."""
    kind = isinstance(column, h5py.Dataset) and h5py.check_string_dtype(column.dtype)
    return bool(kind) and kind.length is None


def _is_dimension(column):
    """Whether this is a dimension without values, as netCDF-4 stores it."""
    try:
        return (isinstance(column, h5py.Dataset) and column.dtype.kind == "f"
                and bytes(column.attrs.get("NAME", b"")).startswith(b"This is a netCDF dimension"))
    except ERRORS:
        return False


def meanings(rows, column):
    """Number → name of an enumeration of a table; {}: the column has texts."""
    if isinstance(rows, Columns):
        return rows.meanings(column)
    values = h5py.check_enum_dtype(rows.dtype[column]) or {}
    return {number: name for name, number in values.items()}


def table(file, name, columns):
    """A table with at least these columns: a group of columns (Columns), or in files of format 1 a
    compound dataset; None if the file has none of this name. Raises Damaged."""
    found = _own(file, name)
    if found is None:
        return None
    found = Columns(file, name, columns) if isinstance(found, h5py.Group) else dataset(file, name)
    missing = [column for column in columns if column not in (found.dtype.names or ())]
    if missing:
        raise Damaged(f"/{name} has no column {', '.join(missing)}, expected a table of reelmesh")
    for column in columns:
        kind = found.dtype[column].kind
        if kind not in KINDS.get(column, "iu") or found.dtype[column].shape:
            raise Damaged(f"/{name} has {found.dtype[column]} as {column}, expected "
                          f"{'texts' if column in KINDS else 'whole numbers'}")
    return found


def present(file, names):
    """Those of the names that the file has. Raises Damaged."""
    try:
        return [name for name in names if file.get(name, getlink=True) is not None]
    except ERRORS as error:
        raise Damaged(f"its content cannot be listed: {error}") from error


def dataset(file, name):
    """The dataset of this name: its values are numbers, texts of fixed length or rows of these, and
    stored in the file. Raises Damaged, also if not all of it has been written: HDF5 reads what is
    missing as zeros."""
    found = _own(file, name)
    if not isinstance(found, h5py.Dataset):
        raise Damaged(f"/{name} is {'not there' if found is None else 'a group'}, expected a "
                      "dataset")
    try:
        _check_storage(found)
        if found.dtype.hasobject:
            raise Damaged(f"{found.name} has values of variable length, expected numbers")
        size, whole = math.prod(found.shape) * found.dtype.itemsize, found.file.id.get_filesize()
        if found.chunks:
            expected = math.prod(-(-n // size) for n, size in zip(found.shape, found.chunks))
            written, unit, limit = found.id.get_num_chunks(), "chunks", MAX_INFLATED * whole
        else:
            expected, unit, limit = size, "bytes", whole
            written = found.id.get_storage_size()
    except ERRORS as error:
        raise Damaged(f"/{name} cannot be read: {error}") from error
    if written != expected:
        raise Damaged(f"/{name} has {written} of {expected} {unit}: it was not written completely")
    if size > limit:
        raise Damaged(f"/{name} has {size} bytes, which a file of {whole} bytes cannot hold")
    return found


def _check_storage(found):
    """Raises Damaged unless the values are in the file itself, with filters of reelmesh's."""
    creation = found.id.get_create_plist()
    if found.shape is None:
        raise Damaged(f"{found.name} has no values")
    if creation.get_layout() == h5py.h5d.VIRTUAL or creation.get_external_count():
        raise Damaged(f"{found.name} has its values in other files, expected them in the file "
                      "itself")
    filters = _filters(creation)
    fletcher32 = h5py.h5z.FILTER_FLETCHER32
    if (set(filters) - FILTERS or len(set(filters)) < len(filters)
            or fletcher32 in filters[:-1]):
        raise Damaged(f"{found.name} is stored with other filters than those of reelmesh")


def _filters(creation):
    return [creation.get_filter(i)[0] for i in range(creation.get_nfilters())]


def texts(file, name):
    """Texts of variable length, one by one. Raises Damaged."""
    found = _own(file, name)
    if not isinstance(found, h5py.Dataset) or h5py.check_string_dtype(found.dtype) is None:
        raise Damaged(f"/{name} is not a dataset of texts")
    yield from texts_of(found)


def texts_of(found):
    """Those of a dataset."""
    try:
        _check_storage(found)
        if len(found.shape) != 1 or found.chunks:
            raise Damaged(f"{found.name} is not a list of texts")
        stored = found.id.get_storage_size()
        if stored > found.file.id.get_filesize() or len(found) > stored:
            raise Damaged(f"{found.name} has {len(found)} texts, which the file cannot hold")
        rest = MAX_TEXTS
        for first in range(0, len(found), 1024):
            for one in found[first:first + 1024]:
                rest -= len(one)
                if rest < 0:
                    raise Damaged(f"{found.name} has more than {MAX_TEXTS >> 20} MiB of texts")
                yield text(one)
    except ERRORS as error:
        raise Damaged(f"{found.name} cannot be read: {error}") from error


def read(array, where=()):
    """The values array[where] of a dataset. where: an index or a slice of the first axis, and
    columns. Raises Damaged."""
    try:
        rows = where[0] if isinstance(where, tuple) and where else where
        if rows == ():
            rows = range(array.shape[0] if array.shape else 1)
        else:
            rows = (range(*rows.indices(len(array))) if isinstance(rows, slice)
                    else range(int(rows), int(rows) + 1))
        size = len(rows) * math.prod(array.shape[1:]) * array.dtype.itemsize
        if size > MAX_READ:
            raise Damaged(f"{array.name} has {size} bytes in one part, expected at most "
                          f"{MAX_READ >> 20} MiB")
        if isinstance(array, Columns):
            return array.read(slice(rows.start, rows.stop),
                              where[1:] if isinstance(where, tuple) else ())
        if array.chunks and len(rows):
            _check_chunks(array, rows)
        return array[where]
    except (*ERRORS, zlib.error) as error:
        raise Damaged(f"{array.name} cannot be read: {error}") from error


def _check_chunks(array, rows):
    """Raises Damaged unless the chunks of these rows give as many bytes as their values take:
    HDF5 1.10 reads beyond the end of shorter ones."""
    filters = _filters(array.id.get_create_plist())
    raw = math.prod(array.chunks) * array.dtype.itemsize
    grid = [range(0, extent, step) for extent, step in zip(array.shape, array.chunks)]
    step = array.chunks[0]
    grid[0] = range(rows[0] // step * step, rows[-1] + 1, step)
    for place in itertools.product(*grid):
        left_out, stored = array.id.read_direct_chunk(place)
        if not _gives(stored, left_out, filters, raw):
            raise Damaged(f"{array.name} has a chunk at {list(place)} that does not give {raw} "
                          "bytes")


def _gives(stored, left_out, filters, raw):
    """Whether a chunk gives this many bytes. left_out: a bit for each filter that was not applied.
    HDF5 may leave out deflate, as it is optional."""
    if filters[-1:] == [h5py.h5z.FILTER_FLETCHER32]:
        if len(stored) <= 4:
            return False
        stored = stored[:-4]
    deflate = h5py.h5z.FILTER_DEFLATE
    bit = 1 << filters.index(deflate) if deflate in filters else 0
    if not bit or left_out == bit:
        return left_out == bit and len(stored) == raw
    inflater = zlib.decompressobj()
    return left_out == 0 and len(inflater.decompress(stored, raw + 1)) == raw and inflater.eof

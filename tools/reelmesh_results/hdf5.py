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

from .errors import Error, fail

FORMAT_VERSION = 1
MAX_READ = 1 << 30  # bytes that are read at a time, 178 million pixels and more
MAX_TEXTS = 256 << 20  # bytes of all requests
MAX_INFLATED = 1100  # how many times as long as its stored bytes deflated data may be
FILTERS = {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_FLETCHER32}
# numpy's kinds of columns that are not whole numbers; states were texts in earlier versions.
COLUMNS = dict.fromkeys(("lane", "name", "host", "role", "device", "place", "purpose", "reason"),
                        "S") | {"state": "iuS"}
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
    return {name: text(bytes(row[name]).rstrip(b"\0")) if row.dtype[name].kind == "S"
            else row[name].item() for name in row.dtype.names}


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


def table(file, name, columns):
    """A table (compound dataset) with at least these columns, of texts of fixed length or numbers;
    None if the file has none of this name. Raises Damaged."""
    if _own(file, name) is None:
        return None
    found = dataset(file, name)
    missing = [column for column in columns if column not in (found.dtype.names or ())]
    if missing:
        raise Damaged(f"/{name} has no column {', '.join(missing)}, expected a table of reelmesh")
    for column in columns:
        kind = found.dtype[column].kind
        if kind not in COLUMNS.get(column, "iu") or found.dtype[column].shape:
            raise Damaged(f"/{name} has {found.dtype[column]} as {column}, expected "
                          f"{'texts' if column in COLUMNS else 'whole numbers'}")
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
    try:
        if not isinstance(found, h5py.Dataset) or h5py.check_string_dtype(found.dtype) is None:
            raise Damaged(f"/{name} is not a dataset of texts")
        _check_storage(found)
        if len(found.shape) != 1 or found.chunks:
            raise Damaged(f"/{name} is not a list of texts")
        stored = found.id.get_storage_size()
        if stored > found.file.id.get_filesize() or len(found) > stored:
            raise Damaged(f"/{name} has {len(found)} texts, which the file cannot hold")
        rest = MAX_TEXTS
        for first in range(0, len(found), 1024):
            for one in found[first:first + 1024]:
                rest -= len(one)
                if rest < 0:
                    raise Damaged(f"/{name} has more than {MAX_TEXTS >> 20} MiB of texts")
                yield text(one)
    except ERRORS as error:
        raise Damaged(f"/{name} cannot be read: {error}") from error


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

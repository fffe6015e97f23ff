"""Opens result files, and says what is wrong with files that cannot be used."""
import contextlib
import math

import h5py

from .errors import fail

FORMAT_VERSION = 1


class Damaged(Exception):
    """A file that is missing, cannot be read, or has unexpected content. `status`: of sysexits."""

    def __init__(self, message, status=65):
        super().__init__(message)
        self.status = status


@contextlib.contextmanager
def or_fail(path):
    """Ends the tool with one message that names the file if what is done with it raises Damaged."""
    try:
        yield
    except Damaged as error:
        fail(error.status, f"{path}: {error}")


def text(value):
    """A text attribute or column as str; earlier files have fixed-length strings, read as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def row_as_dict(row):
    """A row of a table, texts as str and numbers as Python's."""
    return {name: text(bytes(row[name]).rstrip(b"\0")) if row.dtype[name].kind == "S"
            else row[name].item() for name in row.dtype.names}


def attributes(thing):
    """The attributes of a file, group or dataset, texts as str. Raises Damaged."""
    try:
        return {name: text(value) if isinstance(value, (bytes, str)) else value
                for name, value in thing.attrs.items()}
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise Damaged(f"its attributes cannot be read: {error}") from error


def opened(path):
    """The file, open for reading. Raises Damaged."""
    if not path.exists():
        raise Damaged("no such file", 66)
    try:
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


def table(file, name, columns):
    """A table (compound dataset) with at least these columns; None if the file has none of this
    name. Raises Damaged."""
    try:
        if name not in file:
            return None
        found = file[name]
        names = found.dtype.names or ()
    except (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise Damaged(f"/{name} cannot be read: {error}") from error
    missing = [column for column in columns if column not in names]
    if missing:
        raise Damaged(f"/{name} has no column {', '.join(missing)}, expected a table of reelmesh")
    return found


def present(file, names):
    """Those of the names that the file has. Raises Damaged."""
    try:
        return [name for name in names if name in file]
    except (OSError, RuntimeError) as error:
        raise Damaged(f"its content cannot be listed: {error}") from error


def dataset(file, name):
    """The dataset of this name, which is in the file. Raises Damaged, also if not all of it has
    been written: HDF5 reads what is missing as zeros."""
    try:
        found = file[name]
        if not isinstance(found, h5py.Dataset):
            raise Damaged(f"/{name} is a group, expected a dataset")
        if found.chunks:
            expected = math.prod(-(-n // size) for n, size in zip(found.shape, found.chunks))
            written, unit = found.id.get_num_chunks(), "chunks"
        else:
            expected = math.prod(found.shape) * found.dtype.itemsize
            written, unit = found.id.get_storage_size(), "bytes"
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise Damaged(f"/{name} cannot be read: {error}") from error
    if written != expected:
        raise Damaged(f"/{name} has {written} of {expected} {unit}: it was not written completely")
    return found


def read(array, where=()):
    """The values array[where] of a dataset. Raises Damaged."""
    try:
        return array[where]
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise Damaged(f"{array.name} cannot be read: {error}") from error

"""Options of a tool; its errors: one line and an exit status."""
import argparse
import contextlib
import errno
import importlib.util
import math
import os
import pathlib
import sys
import typing

DEBIAN = {"numpy": "python3-numpy", "h5py": "python3-h5py", "PIL": "python3-pil",
          "matplotlib": "python3-matplotlib"}
PYPI = {"PIL": "pillow"}  # those with another name


def tool():
    """The name of the tool that runs."""
    return pathlib.Path(sys.argv[0]).name


def printable(text):
    """A text from outside for a terminal: without characters that would change it or the direction
    of writing."""
    return "".join(one if one == "\n" or one.isprintable() or one == "\u202f" else "\ufffd"
                   for one in text).replace("\u202f", " ")


def tell(text):
    """Prints a text that may have parts from outside."""
    print(printable(text), flush=True)


def say(message, kind="error"):
    print(f"{tool()}: {kind}: " + printable(" ".join(str(message).split())), file=sys.stderr)


class Error(Exception):
    """What ends a tool: says what was found where, and what was expected. `status`: the tool's exit
    status."""

    def __init__(self, message: object, status: int = 65) -> None:
        super().__init__(message)
        self.status = status


def fail(status: int, message: object) -> typing.NoReturn:
    raise Error(message, status)


class Parser(argparse.ArgumentParser):
    """Options; a wrong one ends the tool with status 64."""

    def __init__(self, description):
        super().__init__(prog=tool(), description=description,
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message):
        fail(64, message)


def whole(least, most=math.inf):
    """The type of an option for argparse: a whole number from `least` to `most`."""
    def convert(text):
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"found '{text}', expected a whole number from {least} "
                + ("on" if most == math.inf else f"to {most}"))
        return int(text)
    return convert


def need_packages(*names):
    """Exits with status 69 if one of these modules is not installed, and says commands that mend
    it: in a virtual environment for that, elsewhere for Debian and for a new environment, which
    sees Debian's packages and has to run the tool."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing:
        return
    ways = []
    if sys.prefix != sys.base_prefix:
        pypi = " ".join(PYPI.get(name, name) for name in missing)
        ways.append(f"{sys.executable} -m pip install {pypi}")
    else:
        debian = [DEBIAN[name] for name in missing if name in DEBIAN]
        others = [name for name in missing if name not in DEBIAN]
        if debian:
            ways.append(f"on Debian: apt install {' '.join(debian)}")
        if others:
            ways.append(f"{sys.executable} -m venv --system-site-packages ENV && "
                        f"ENV/bin/pip install {' '.join(others)}, and run it as "
                        f"ENV/bin/python {sys.argv[0]}")
    fail(69, f"{sys.executable} has no {', '.join(missing)}; {'; '.join(ways)}")


def folder(path):
    """Makes a folder for results. Exits with status 73 if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(73, f"{path}: cannot make the folder: {error.strerror}")


def written(path, write):
    """Calls write(file) for an empty temporary file `.NAME.partial`, then renames it to `path`.
    Returns what write() returned. Exits if that fails: with status 74 if the disk is full or fails,
    else with 73."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # of a tool that was killed; a link is not written through
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError as error:
        not_written(path, error)
    try:
        result = write(partial)
        partial.replace(path)
        return result
    except OSError as error:
        not_written(path, error)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def not_written(path, error):
    """Exits with status 74 if the disk is full or fails, else with 73."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    fail(74 if full else 73, f"{path}: cannot write it: {error.strerror or error}")


def run(main):
    """Calls main() and ends the tool with its exit status, or that of an Error; 130 after Ctrl-C, 69
    if there is not enough memory, 74 if reading or writing fails, silently if the reader of standard
    output has ended, as `head` does."""
    try:
        status = main()
        sys.stdout.flush()
    except Error as error:
        say(error)
        status = error.status
    except KeyboardInterrupt:
        status = 130
    except MemoryError:
        say("there is not enough memory")
        status = 69
    except OSError as error:
        if error.errno != errno.EPIPE:
            say(f"{error.filename or 'standard output'}: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        status = 74
    sys.exit(status)

"""JSON from files that may be damaged or made by others."""
import json
import os
import stat

MAX_BYTES = 64 << 20  # of a file
MAX_DEPTH = 64  # arrays and objects within each other: Python's json recurses into them


def parse(content):
    """The value of a text. Raises ValueError."""
    try:
        found = json.loads(content, parse_constant=_refuse)
    except RecursionError:
        found = None
        depth = MAX_DEPTH + 1
    else:
        depth = _depth(found)
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} arrays and objects are nested")
    if (b"\\ud" if isinstance(content, bytes) else "\\ud") in content.lower():
        json.dumps(found, ensure_ascii=False).encode()  # refuses half a surrogate pair
    return found


def of_file(path):
    """The value in a file. Raises OSError, ValueError."""
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
    return parse(content)


def _refuse(name):
    raise ValueError(f"found {name}, expected a number")


def _depth(value):
    """How many arrays and objects are within each other, up to MAX_DEPTH + 1."""
    level = [value]
    for depth in range(MAX_DEPTH + 1):
        level = [inner for one in level if isinstance(one, (list, dict))
                 for inner in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return depth
    return MAX_DEPTH + 1

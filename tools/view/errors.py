"""Reports errors: one line and an exit status."""
import importlib.util
import sys

DEBIAN = {"numpy": "python3-numpy", "h5py": "python3-h5py", "PIL": "python3-pil"}


def say(message):
    print("reelmesh-view: error: " + " ".join(str(message).split()), file=sys.stderr)


def fail(status, message):
    say(message)
    sys.exit(status)


def need_packages(*names):
    """Exits with status 69 if one of these modules is not installed."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        packages = " ".join(DEBIAN[name] for name in missing)
        fail(69, f"{sys.executable} has no {', '.join(missing)}; on Debian: apt install {packages}")


def written(path, write):
    """Calls write(file) for a hidden temporary file, then renames it to `path`. Exits with status
    73 if that fails."""
    partial = path.with_name("." + path.name)
    try:
        write(partial)
        partial.replace(path)
    except OSError as error:
        fail(73, f"{path}: cannot write it: {error.strerror or error}")
    finally:
        partial.unlink(missing_ok=True)

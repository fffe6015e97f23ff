"""Names of clips as VBench and VBench++ look for them: PROMPT-INDEX.mp4, with the index from 0 on
among the clips of a prompt (vbench/__init__.py, build_full_info_json, of
https://github.com/Vchitect/VBench)."""
import collections
import os
import shutil

from . import strict_json
from .errors import fail

MAX_BYTES = 255  # of the name of a file
HIDDEN = len(b"..partial")  # what errors.written() adds while it is written


def names(index, path, listed=None):
    """Clip → name of its file, of all clips that the job was asked for. index, path: its job.h5.
    listed: file with the names that take the place of prompts, one a line, each for equally many
    clips in turn."""
    prompts = [str(request.get("prompt", "")) for request in index.requests]
    if not prompts:
        fail(65, f"{path}: lists no requests, expected the prompts of the clips")
    if listed is not None:
        prompts = _listed(listed, len(prompts))
    count, found = collections.Counter(), {}
    for number, prompt in enumerate(prompts):
        name = f"{prompt}-{count[prompt]}.mp4"
        count[prompt] += 1
        if reason := _unfit(prompt, name):
            fail(65, f"clip {number}: its prompt {reason}, so it cannot name a file; expected a "
                     "prompt of VBench, or --names with a name for each prompt")
        found[number] = name
    return found


def _unfit(prompt, name):
    """Why it cannot be the name of a file; None if it can."""
    if not prompt.strip():
        return "is empty"
    for character in prompt:
        if character == "/" or not (character.isprintable() or character.isspace()) \
                or character in "\n\r":
            return f"has the character {character!r}"
    size = len(name.encode()) + HIDDEN
    return f"has {len(prompt.encode())} bytes" if size > MAX_BYTES else None


def _listed(path, clips):
    """The name of each clip."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        fail(66, f"{path}: cannot be read: {error}")
    lines = [line.strip() for line in lines if line.strip()]
    if not lines or clips % len(lines):
        fail(65, f"{path}: has {len(lines)} names for {clips} clips, expected equally many clips "
                 "for each name")
    times = clips // len(lines)
    return [lines[number // times] for number in range(clips)]


def folders(path):
    """Prompt → the dimensions of VBench that it is for, from VBench_full_info.json or its like."""
    try:
        entries = strict_json.of_file(path)
        found = collections.defaultdict(list)
        for entry in entries:
            for dimension in entry["dimension"]:
                if "/" in dimension or dimension in ("", ".", ".."):
                    raise ValueError(f"found the dimension {dimension!r}")
                if dimension not in found[entry["prompt_en"]]:
                    found[entry["prompt_en"]].append(dimension)
        return dict(found)
    except OSError as error:
        fail(66, f"{path}: cannot be read: {error.strerror}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fail(65, f"{path}: expected a list of objects with prompt_en and dimension, as "
                 f"VBench_full_info.json: {error}")


def check_folder(folder):
    """VBench takes the ending of the first file that it finds as that of all videos."""
    if not folder.is_dir():
        return
    other = next((path for path in sorted(folder.iterdir()) if path.suffix != ".mp4"), None)
    if other is not None:
        fail(73, f"{folder}: found {other.name}, expected a folder with nothing but videos, as "
                 "VBench takes the ending of any file there as that of its videos")


def link(path, target):
    """target: another name of the file at `path`; a copy where the file system has no links."""
    target.unlink(missing_ok=True)
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)

#!/usr/bin/env python3
"""Checks by #include lines which folders of lib/ depend on which others: check_order.py [SOURCE]

Prints one line for each forbidden include; exit status 1 if there is any. The rules are those of
the link dependencies in CMakeLists.txt, and stricter where linking would permit more.
"""
import pathlib
import re
import sys

# Folder of lib/ -> folders whose headers it may include besides its own. In order of dependency:
# each folder depends only on folders above it.
MAY_INCLUDE = {
    "base": "",
    "tensor": "base",
    "media": "base tensor",
    "ops": "base tensor",
    "comm": "base tensor",
    "layout": "base tensor ops comm",
    "weights": "base tensor",
    "text": "base weights",
    "sampler": "base tensor",
    # Layers declare which axes must be whole on a rank; only layout knows which rank holds what.
    "models": "base tensor ops layout weights sampler",
    # Plans are computed for any number of ranks and any model, without MPI.
    "plan": "base tensor layout weights",
    "store": "base tensor comm layout sampler",
    # Files that users give, whatever holds the pixels.
    "inputs": "base tensor media weights sampler store",
    # What a job is: options, clips, inputs, model families. It runs nothing.
    "job": "base tensor ops comm layout media weights text sampler models plan store inputs",
    # What a job will take: layouts, memory, time.
    "forecast": "base tensor ops comm layout media weights text sampler models plan store inputs "
                "job",
    "pipeline": "base tensor ops comm layout media weights text sampler models plan store inputs "
                "job forecast",
    "train": "base tensor ops comm layout media weights text sampler models plan store inputs job "
             "forecast pipeline",
}
# Headers that a folder must not include, directly or transitively.
UNREACHABLE = {
    "plan": r"mpi\.h|comm/.*|ops/.*|models/.*",
    "text": r"mpi\.h|tensor/.*",
    "weights": r"mpi\.h",
    "sampler": r"mpi\.h",
    "ops": r"mpi\.h|comm/.*",
}
# Headers of external libraries -> the only places that may include them.
PLACES = {
    r"mpi\.h": ["lib/comm"],
    r"(hdf5|H5).*": ["lib/store", "app/program.cpp"],
    r"(dnnl|oneapi).*": ["lib/ops", "app/program.cpp"],
    r"sentencepiece.*|utf8proc\.h": ["lib/text"],
    r"(xxhash|xxh3|xxh_).*": ["lib/base", "app/program.cpp"],
    r"png\.h|j(peglib|error)\.h": ["lib/media", "app/program.cpp"],
    r"lib(av|sw)[a-z]+/.*": ["lib/media", "app/program.cpp"],
    r"boost/.*": ["app"],
    r"nccl.*|cuda.*|cudnn.*|cublas.*": ["lib/ops", "lib/comm", "lib/tensor"],
}
# What depends on whether the CUDA backend is built, and where it may stand: in sources that are
# compiled again for emulated GPUs (lib/device_sources.cmake), not in headers of others.
CHOICE = re.compile(r'\bcuda_built\b|"tensor/dispatch\.hpp"')
CHOOSING = re.compile(r"lib/\w+/cuda/.*|app/program\.cpp|lib/tensor/(device|dispatch)\.hpp")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def listed_device_sources(text):
    """Those of lib/device_sources.cmake, as paths relative to the repository."""
    return ["lib/" + path for path in re.findall(r"^  ([\w/]+\.cpp)", text, re.MULTILINE)]


def chooses(line):
    return CHOICE.search(line.split("//")[0]) is not None


def violations(name, text, device_sources=()):
    """Yields (line number, message) for the forbidden includes of the file `name`, a path relative
    to the repository."""
    room = name.split("/")[1] if name.startswith("lib/") else None
    may_choose = name in device_sources or CHOOSING.fullmatch(name)
    for number, line in enumerate(text.splitlines(), 1):
        if chooses(line) and not may_choose:
            yield number, ("depends on whether the CUDA backend is built, but is not in "
                           "lib/device_sources.cmake")
        include = INCLUDE.match(line)
        if include:
            header = include[1] or include[2]
            other = header.split("/")[0]
            allowed = [room, *MAY_INCLUDE.get(room, "").split()]
            if room and other in MAY_INCLUDE and other not in allowed:
                yield number, f"lib/{room} includes {header}, but may not know lib/{other}"
            for pattern, places in PLACES.items():
                if re.fullmatch(pattern, header) and not name.startswith(tuple(places)):
                    yield number, f"includes {header}, which belongs to {', '.join(places)}"
        elif room == "models":
            if re.match(r"\s*#\s*(if|elif)", line):
                yield number, "a condition of the preprocessor within lib/models"
            if re.search(r"\b(MPI|nccl)[_A-Z]|[.>]rank\(\)", line.split("//")[0]):
                yield number, "MPI, NCCL or a rank number within lib/models"


def includes_of(text):
    """The headers that a text includes."""
    found = (INCLUDE.match(line) for line in text.splitlines())
    return [include[1] or include[2] for include in found if include]


def include_chains(name, texts, pattern):
    """Chains of includes by which the file `name` reaches headers that match the pattern, one for
    each such header. texts: path relative to the repository -> text, for all files of lib/."""
    seen, waiting = set(), [[name]]
    while waiting:
        chain = waiting.pop(0)
        for header in includes_of(texts.get(chain[-1], "")):
            if header in seen:
                continue
            seen.add(header)
            if re.fullmatch(pattern, header):
                yield chain[1:] + [header]
            waiting.append(chain + [f"lib/{header}"])


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    rooms = {path.name for path in (source / "lib").iterdir() if path.is_dir()}
    found = [f"lib/{room}: a room without a rule" for room in sorted(rooms - MAY_INCLUDE.keys())]
    files = sorted(
        path
        for folder in ("lib", "app")
        for path in (source / folder).rglob("*")
        if path.suffix in (".hpp", ".cpp", ".cu", ".cuh")
    )
    texts = {path.relative_to(source).as_posix(): path.read_text(encoding="utf-8")
             for path in files}
    device_sources = listed_device_sources(
        (source / "lib/device_sources.cmake").read_text(encoding="utf-8"))
    found += [f"{name}: is in lib/device_sources.cmake, but does not depend on the CUDA backend"
              for name in device_sources
              if not any(map(chooses, texts.get(name, "").splitlines()))]
    for name, text in texts.items():
        for number, what in violations(name, text, device_sources):
            found.append(f"{name}:{number}: {what}")
        pattern = UNREACHABLE.get(name.split("/")[1]) if name.startswith("lib/") else None
        for chain in include_chains(name, texts, pattern) if pattern else ():
            found.append(f"{name}: reaches {chain[-1]} by {' -> '.join(chain[:-1]) or 'itself'}")
    print("\n".join(found) or f"{len(files)} files of {len(rooms)} rooms and app keep the order")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())

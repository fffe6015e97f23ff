#!/usr/bin/env python3
"""The same bits however a clip is made: by 1 to 4 ranks that share a GPU, with and without a CUDA
graph, by NCCL.

    tests/gpu/same_bits.py PROGRAM MPIRUN H5DUMP FOLDER [--tiny] [--case CASE] [TYPE …]

Makes a model of two layers in FOLDER, then a clip of each TYPE (bfloat16, float16, float32;
default: all) in each way of the case, and compares its latents, and its video if it has one, with
those of the first way. Ends with 1 where they differ or a run fails. Cases:
  ranks  at the width of CogVideoX-2b and 1,216 tokens: 1, 2, 3, 4 ranks (default)
  real   at the width of CogVideoX-5b and 17,776 tokens: 1 rank with a CUDA graph and, as its trace
         has layers, without; 3 ranks
  nccl   likewise: 1 rank, and 2 that share the GPU and send by NCCL, which needs version 2.30;
         ends with 77 without it
--tiny: a tiny model, for emulated GPUs. H5DUMP reads the clips: a machine with a GPU may have no
h5py.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

TYPES = ("bfloat16", "float16", "float32")
NO_NCCL = "NCCL_MULTI_RANK_GPU_ENABLE|Duplicate GPU"
SHARED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "REELMESH_EMULATED_GPUS": "1"}
# Ways to make a clip: a name, ranks, options and environment.
GRAPH = ("1 rank", 1, ["--trace.level", "stages"], {})
EAGER = ("1 rank without a graph", 1, ["--trace.level", "layers"], {})
NCCL = ("2 ranks by NCCL", 2, ["--device.transport", "nccl"], SHARED)
RANKS = [(f"{n} rank{'s' * (n > 1)}", n, [], {}) for n in (1, 2, 3, 4)]
WIDE = ("cogvideox-5b", ["--layers", 2, "--text-layers", 1])
LONG = {"height": 480, "width": 720, "frames": 49, "steps": 4}
CASES = {  # preset and its options, size, what is compared, ways
    "ranks": (("cogvideox-2b", ["--layers", 2, "--text-layers", 2]),
              {"height": 240, "width": 352, "frames": 9, "steps": 4}, ("latents", "video"), RANKS),
    "real": (WIDE, LONG, ("latents",), [GRAPH, EAGER, RANKS[2]]),
    "nccl": (WIDE, LONG, ("latents",), [GRAPH, NCCL]),
}
TINY = {  # with enough tokens for fused attention, where the real case has them
    "ranks": (("tiny-cogvideox", []), {"height": 64, "width": 64, "frames": 5, "steps": 3}),
    "real": (("tiny-cogvideox-rotary", []), {"height": 256, "width": 256, "frames": 8, "steps": 3}),
    "nccl": (("tiny-cogvideox-rotary", []), {"height": 64, "width": 64, "frames": 8, "steps": 3}),
}

words = sys.argv[1:]
tiny = "--tiny" in words
if tiny:
    words.remove("--tiny")
case = "ranks"
if "--case" in words:
    at = words.index("--case")
    case = words[at + 1]
    del words[at:at + 2]
program, mpirun, h5dump, folder = words[:4]
dtypes = words[4:] or TYPES
made, size, datasets, ways = CASES[case]
if tiny:
    made, size = TINY[case]
(preset, cuts) = made
folder = pathlib.Path(folder)
folder.mkdir(exist_ok=True)
model = folder / preset


def call(*command, env=None):
    """Whether it ended well, and its words."""
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=os.environ | (env or {}))
    for line in done.stdout.splitlines():  # such as a graph that does not fit
        if "warning:" in line and done.returncode == 0:
            print(line)
    return done.returncode == 0, done.stdout


def clip(dtype, way):
    """Bytes of the datasets, or the words of a run that failed."""
    name, ranks, options, env = way
    output = folder / f"{case} {dtype} {name}".replace(" ", "_")
    sizes = [word for key, value in size.items() for word in (f"--sample.{key}", value)]
    launcher = [mpirun, "-n", ranks] if ranks > 1 else []
    if "video" not in datasets:
        sizes += ["--output.video", "no"]
    good, said = call(*launcher, program, "run", "--model.path", model, "--prompt.text",
                      "a red ball", "--numerics.dtype", dtype, "--device.backend", "cuda",
                      "--output.path", output, "--output.if-exists", "replace", *sizes, *options,
                      env=env)
    if not good:
        return said
    return [content(output / "clips/000000.h5", name) for name in datasets]


def content(file, name):
    """Bytes of a dataset."""
    bytes_of = folder / "content"
    bytes_of.unlink(missing_ok=True)
    good, said = call(h5dump, "-d", f"/{name}", "-b", "LE", "-o", bytes_of, file)
    if not good:
        sys.exit(f"{file}: {h5dump} does not read {name}: {said[-500:]}")
    found = bytes_of.read_bytes()
    assert len(found) > 1000, f"{file}: {name} has {len(found)} bytes"
    return found


def main():
    if not (model / "model_index.json").is_file():
        good, said = call(program, "make-model", preset, model, "--no-sync", *cuts)
        if not good:
            print(said[-2000:])
            return 1
    good, missing = True, False
    for dtype in dtypes:
        first = None
        for way in ways:
            start = time.monotonic()
            made = clip(dtype, way)
            failed = isinstance(made, str)
            if failed and way is NCCL and re.search(NO_NCCL, made):
                print(f"left out: {way[0]}: {made.strip().splitlines()[-1]}", flush=True)
                missing = True
                continue
            if failed:
                print(made[-2000:])
            elif first is None:
                first = made
            equal = not failed and made == first
            good = good and equal
            differ = [name for name, a, b in zip(datasets, made, first or ()) if a != b]
            print(f"{dtype}, {way[0]}: "
                  + ("failed" if failed else "the same bits" if equal else
                     f"OTHER BITS ({' and '.join(differ)} differ)")
                  + f" ({time.monotonic() - start:.1f} s)", flush=True)
    return 77 if missing and good else 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

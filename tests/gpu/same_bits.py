#!/usr/bin/env python3
"""The same bits for 1 to 4 ranks that share a GPU, at the width of CogVideoX-2b.

    tests/gpu/same_bits.py PROGRAM MPIRUN H5DUMP FOLDER [--tiny] [TYPE …]

Makes a model of two layers in FOLDER, then a clip of each TYPE (bfloat16, float16, float32;
default: all) on 1 to 4 ranks, and compares its latents and video with those of one rank. Ends with
1 where they differ or a run fails. --tiny: a tiny model, for emulated GPUs. H5DUMP reads the clips:
a machine with a GPU may have no h5py.
"""
import pathlib
import subprocess
import sys
import time

program, mpirun, h5dump, folder = sys.argv[1:5]
tiny = "--tiny" in sys.argv
dtypes = [word for word in sys.argv[5:] if word != "--tiny"] or ["bfloat16", "float16", "float32"]
folder = pathlib.Path(folder)
folder.mkdir(exist_ok=True)
model = folder / "model"
if tiny:
    PRESET, CUTS = "tiny-cogvideox", []
    SIZE = {"height": 64, "width": 64, "frames": 5, "steps": 3}
else:
    PRESET, CUTS = "cogvideox-2b", ["--layers", 2, "--text-layers", 2]
    SIZE = {"height": 240, "width": 352, "frames": 9, "steps": 4}


def call(*words):
    done = subprocess.run([str(word) for word in words], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        print(done.stdout[-2000:])
    return done.returncode == 0


def clip(dtype, ranks):
    """Bytes of the latents and of the video, or None where the run failed."""
    output = folder / f"{dtype}-{ranks}"
    sizes = [word for name, value in SIZE.items() for word in (f"--sample.{name}", value)]
    launcher = [mpirun, "-n", ranks] if ranks > 1 else []
    if not call(*launcher, program, "run", "--model.path", model, "--prompt.text", "a red ball",
                "--numerics.dtype", dtype, "--device.backend", "cuda", "--output.path", output,
                "--output.if-exists", "replace", *sizes):
        return None
    return [content(output / "clips/000000.h5", name) for name in ("latents", "video")]


def content(file, name):
    """Bytes of a dataset."""
    bytes_of = folder / "content"
    bytes_of.unlink(missing_ok=True)
    if not call(h5dump, "-d", f"/{name}", "-b", "LE", "-o", bytes_of, file):
        sys.exit(f"{file}: {h5dump} does not read {name}")
    found = bytes_of.read_bytes()
    assert len(found) > 1000, f"{file}: {name} has {len(found)} bytes"
    return found


if not (model / "model_index.json").is_file() and not call(
        program, "make-model", PRESET, model, "--no-sync", *CUTS):
    sys.exit(1)
good = True
for dtype in dtypes:
    alone = None
    for ranks in (1, 2, 3, 4):
        start = time.monotonic()
        made = clip(dtype, ranks)
        alone = alone or made
        equal = made is not None and made == alone
        good = good and equal
        print(f"{dtype}, {ranks} ranks: "
              + ("failed" if made is None else "the same bits" if equal else
                 f"OTHER BITS (latents {'equal' if made[0] == alone[0] else 'differ'})")
              + f" ({time.monotonic() - start:.1f} s)", flush=True)
sys.exit(0 if good else 1)

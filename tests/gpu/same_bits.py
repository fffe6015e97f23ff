#!/usr/bin/env python3
"""The same bits for 1 to 4 ranks that share a GPU, at the width of CogVideoX-2b.

    tests/gpu/same_bits.py PROGRAM MPIRUN FOLDER [--tiny]

Makes a model of two layers in FOLDER, then a clip of each type on 1 to 4 ranks, and compares its
latents and video with those of one rank. Ends with 1 where they differ or a run fails. --tiny: a
tiny model, for emulated GPUs. Needs h5py; ends with 77 without it.
"""
import pathlib
import subprocess
import sys
import time

try:
    import h5py
except ImportError as error:
    print(f"left out: {error}")
    sys.exit(77)

program, mpirun, folder = sys.argv[1:4]
tiny = "--tiny" in sys.argv
folder = pathlib.Path(folder)
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
    with h5py.File(output / "clips/000000.h5") as file:
        return file["latents"][()].tobytes(), file["video"][()].tobytes()


if not (model / "model_index.json").is_file() and not call(
        program, "make-model", PRESET, model, *CUTS):
    sys.exit(1)
good = True
for dtype in ("float32", "bfloat16", "float16"):
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

#!/usr/bin/env python3
"""Times PyTorch's encoder on the clip of bench_encode: wall-clock and CPU seconds, peak memory.

    OMP_NUM_THREADS=1 tests/bench/encode_in_pytorch.py VAE_DIR FRAMES ROWS COLUMNS float32|bfloat16 [TIMES]

FRAMES: of the clip; ROWS and COLUMNS: extents of the latents (8 × 8 pixels each). The first call
does not count. Needs torch and diffusers. On a busy machine, compare CPU seconds of one thread with
the busy seconds of bench_encode on one rank of one thread.
"""
import json
import pathlib
import resource
import sys
import time

import diffusers
import torch


def main(folder, frames, rows, columns, dtype, times="1"):
    torch.set_grad_enabled(False)
    dtype = getattr(torch, dtype)
    kind = json.loads((pathlib.Path(folder) / "config.json").read_text())["_class_name"]
    vae = getattr(diffusers, kind).from_pretrained(folder, torch_dtype=dtype).eval()
    clip = torch.rand((1, 3, int(frames), 8 * int(rows), 8 * int(columns))).to(dtype) * 2 - 1
    if kind == "AutoencoderKL":  # frames are images
        clip = clip[0].transpose(0, 1)
    for call in range(int(times) + 1):
        wall, processor = time.perf_counter(), time.process_time()
        vae.encode(clip).latent_dist.sample()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{torch.get_num_threads()} threads: {wall:.2f} s; busy {processor:.2f} s; at most {peak:.0f} MiB"
              f"{' (first call)' if call == 0 else ''}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

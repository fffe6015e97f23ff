"""Training clips of the denoiser: drawn and encoded once, kept as latents and scenes."""
import dataclasses

import numpy as np

from . import drawing, latents, scenes, stages

LABELS = ("count", "background", "colour", "shape", "motion", "size", "speed")


def make(folder, seed, clips, at_once=512):
    """Writes pool.npy, float16 [clips, 3, 16, 8, 8], and pool_labels.npz, unless they are there."""
    if (folder / "pool_labels.npz").exists():
        return
    space, rng = stages.fit_space(folder, seed), np.random.default_rng([seed, 1])
    pool = np.lib.format.open_memmap(folder / "pool.npy", "w+", np.float16, (clips, 3, 16, 8, 8))
    labels = []
    for at in range(0, clips, at_once):
        some = scenes.sample(rng, min(at_once, clips - at))
        z = space.encode(latents.to_unit(drawing.draw(some)))
        pool[at:at + len(some)] = z.transpose(1, 2).numpy()
        labels.append({name: getattr(some, name) for name in LABELS})
    pool.flush()
    np.savez(folder / "pool_labels.npz",
             **{name: np.concatenate([part[name] for part in labels]) for name in LABELS})


def load(folder):
    """Latents (read-only map of the file) and a namespace of labels."""
    stored = np.load(folder / "pool_labels.npz")
    kind = dataclasses.make_dataclass("Labels", LABELS)
    return np.load(folder / "pool.npy", mmap_mode="r"), kind(**{n: stored[n] for n in LABELS})

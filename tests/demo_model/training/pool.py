"""Training clips of the denoiser: drawn and encoded once, stored as latents and labels."""
import dataclasses

import numpy as np

from drawn_clips import captions, drawing, scenes

from . import latents, stages, text

CLIPS = 49152  # number of training clips
WORDINGS = 6  # captions per clip
LABELS = ("count", "background", "colour", "shape", "motion", "size", "speed")


def make(folder, seed, clips, at_once=512):
    """Writes pool.npy, float16 [clips, 3, 16, 8, 8], and pool_labels.npz, unless they exist."""
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
    """Latents (the file, memory-mapped read-only), and an object with the arrays LABELS."""
    stored = np.load(folder / "pool_labels.npz")
    kind = dataclasses.make_dataclass("Labels", LABELS)
    return np.load(folder / "pool.npy", mmap_mode="r"), kind(**{n: stored[n] for n in LABELS})


def prepare(folder, seed):
    """Makes the vocabulary, the clips and the token ids of their captions, unless they exist."""
    text.train_vocabulary(folder, seed)
    make(folder, seed, CLIPS)
    if (folder / "pool_ids.npy").exists():
        return
    tokenizer, rng = text.load_vocabulary(folder), np.random.default_rng([seed, 3])
    labels = load(folder)[1]
    ids = np.zeros((WORDINGS, len(labels.count), text.LENGTH), np.int16)
    for wording in ids:
        for index in range(len(wording)):
            found = tokenizer(captions.caption(rng, labels, index)).input_ids
            wording[index, :min(len(found), text.LENGTH)] = found[:text.LENGTH]
    np.save(folder / "pool_ids.npy", ids)

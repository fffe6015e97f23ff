"""The text encoder, trained before the transformer to encode the whole scene in every token.

A linear head predicts count, background and each shape's colour, kind, motion, size and speed from
the hidden state of each token. Then the head is dropped and the encoder is frozen. Which word
belongs to which shape is thus learned in minutes; with the denoising loss alone it takes hours.
"""
import numpy as np
import torch
import torch.nn.functional as F

from drawn_clips import captions, scenes

from . import loop, muon, pool, text

OF_A_SHAPE = {"colour": scenes.COLOURS, "shape": scenes.SHAPES, "motion": scenes.MOTIONS,
              "size": scenes.SIZES, "speed": scenes.SPEEDS}
SIZES = [scenes.SHAPES_MAX, len(scenes.BACKGROUNDS),
         *[len(names) for names in OF_A_SHAPE.values()] * scenes.SHAPES_MAX]


def targets(labels):
    """Classes, int64 [N, len(SIZES)]; weights, float32: 0 for shapes that a scene lacks, else 1."""
    classes, asked = [labels.count - 1, labels.background], [np.ones(len(labels.count))] * 2
    for slot in range(scenes.SHAPES_MAX):
        classes += [getattr(labels, name)[:, slot] for name in OF_A_SHAPE]
        asked += [labels.count > slot] * len(OF_A_SHAPE)
    return (torch.from_numpy(np.stack(classes, 1).astype(np.int64)),
            torch.from_numpy(np.stack(asked, 1).astype(np.float32)))


class Listener(torch.nn.Module):
    def __init__(self, tokenizer):
        super().__init__()
        self.encoder = text.make_encoder(tokenizer)
        self.head = torch.nn.Linear(text.WIDTH, sum(SIZES))

    def forward(self, ids):
        """[N, L] → a list over SIZES of [N, L, classes]."""
        return self.head(self.encoder(ids).last_hidden_state).split(SIZES, -1)


class TextEncoder(loop.Task):
    batch = 128

    def __init__(self, folder, seed, device):
        super().__init__(folder, seed, device)
        self.model = Listener(text.load_vocabulary(self.folder)).to(device)
        self.classes, self.asked = targets(pool.load(self.folder)[1])
        self.ids = np.load(self.folder / "pool_ids.npy", mmap_mode="r")

    def reseed(self, seed):
        self.random = np.random.default_rng(seed)

    def optimizers(self):
        inner, outer = muon.matrices(self.model, (".SelfAttention.", ".DenseReluDense."))
        return [(muon.Muon(inner), 3e-3),
                (torch.optim.AdamW(outer, betas=(0.9, 0.97), weight_decay=0.01), 3e-3)]

    def loss(self, step):
        which = self.random.integers(len(self.classes), size=self.batch)
        ids = self.ids[self.random.integers(len(self.ids), size=self.batch), which]
        found = self.model(torch.from_numpy(ids.astype(np.int64)).to(self.device))
        total = 0
        for index, one in enumerate(found):
            wanted = self.classes[which, index].to(self.device)[:, None].expand(one.shape[:2])
            error = F.cross_entropy(one.transpose(1, 2), wanted, reduction="none").mean(1)
            total = total + (error * self.asked[which, index].to(self.device)).mean()
        return total, {}


def encoder_weights(folder):
    """State dict of the trained text encoder, without the head."""
    stored = loop.weights(folder, "text")[0]
    return {name.removeprefix("encoder."): value for name, value in stored.items()
            if name.startswith("encoder.")}


@torch.no_grad()
def check(folder, count=1000, seed=9):
    """Accuracy of the head, averaged over tokens, for scenes of held-out combinations."""
    some = scenes.sample(np.random.default_rng(seed), count, held=True)
    tokenizer, rng = text.load_vocabulary(folder), np.random.default_rng(seed)
    listener = Listener(tokenizer)
    listener.load_state_dict(loop.weights(folder, "text")[0])
    ids = text.encode(tokenizer, [captions.caption(rng, some, i) for i in range(count)])
    classes, asked = targets(some)
    right = torch.stack([one.mean(1).argmax(-1) for one in listener(ids)], 1) == classes
    return float((right.float() * asked).sum() / asked.sum())

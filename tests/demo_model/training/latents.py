"""The latent space that the VAE's encoder learns to produce and its decoder learns to read.

A latent covers 8 × 8 pixels × 4 frames (the first frame is repeated 4 times). Its 16 channels are
the largest principal components of such blocks in drawn clips, each divided by the square root of
its standard deviation, so that coarse components stay larger than fine ones. As the space is fixed
beforehand, the decoder, the encoder and the transformer can be trained independently. It is linear
in the pixels, which makes denoising easy.
"""
import numpy as np
import torch

from drawn_clips import drawing, scenes

CELL, GROUP, CHANNELS = 8, 4, 16


def to_unit(clips):
    """uint8 [N, T, H, W, 3] → float [N, 3, T, H, W] in [-1, 1]."""
    return torch.from_numpy(clips).permute(0, 4, 1, 2, 3).float() / 127.5 - 1


def blocks(video):
    """[N, 3, 1 + 4k, H, W] → [N, 1 + k, H/8, W/8, 768]."""
    video = torch.cat([video[:, :, :1].expand(-1, -1, GROUP - 1, -1, -1), video], 2)
    n, c, t, h, w = video.shape
    cut = video.reshape(n, c, t // GROUP, GROUP, h // CELL, CELL, w // CELL, CELL)
    return cut.permute(0, 2, 4, 6, 1, 3, 5, 7).reshape(n, t // GROUP, h // CELL, w // CELL, -1)


class Space:
    """mean [768], analysis [768, 16]: latents = (blocks - mean) @ analysis."""

    def __init__(self, mean, analysis):
        self.mean, self.analysis = mean, analysis

    @classmethod
    def fit(cls, seed, clips=1500):
        rng = np.random.default_rng(seed)
        total, square, rows = 0, 0, 0
        for _ in range(clips // 100):
            flat = blocks(to_unit(drawing.draw(scenes.sample(rng, 100)))).flatten(0, 3).double()
            total, square, rows = total + flat.sum(0), square + flat.T @ flat, rows + len(flat)
        mean = total / rows
        values, vectors = torch.linalg.eigh(square / rows - torch.outer(mean, mean))
        values, vectors = values.flip(0)[:CHANNELS], vectors.flip(1)[:, :CHANNELS]
        vectors = vectors * torch.sign(vectors.sum(0))
        analysis = vectors / values ** 0.25
        # Scales to a mean square of 1 over all channels.
        analysis = analysis / ((values ** 0.5).mean() ** 0.5)
        return cls(mean.float(), analysis.float())

    @classmethod
    @torch.no_grad()
    def of_encoder(cls, encode, seed, clips=400):
        """The space that an encoder was trained for, by linear regression of what it computes.

        encode([N, 3, T, H, W]) returns means [N, 16, t, h, w].
        """
        rng = np.random.default_rng(seed)
        square, product = 0, 0
        for _ in range(clips // 40):
            video = to_unit(drawing.draw(scenes.sample(rng, 40)))
            flat = blocks(video).flatten(0, 3).double()
            flat = torch.cat([flat, torch.ones(len(flat), 1, dtype=torch.double)], 1)
            means = encode(video).permute(0, 2, 3, 4, 1).flatten(0, 3).double()
            square, product = square + flat.T @ flat, product + flat.T @ means
        ridge = 1e-6 * square.diagonal().mean() * torch.eye(len(square), dtype=torch.double)
        found = torch.linalg.solve(square + ridge, product)
        analysis, offset = found[:-1], found[-1]
        mean = -torch.linalg.lstsq(analysis.T, offset[:, None]).solution[:, 0]
        return cls(mean.float(), analysis.float())

    def encode(self, video):
        """[N, 3, T, H, W] in [-1, 1] → [N, 16, t, h, w]."""
        return ((blocks(video) - self.mean) @ self.analysis).permute(0, 4, 1, 2, 3)

    def save(self, path):
        torch.save({"mean": self.mean, "analysis": self.analysis}, path)

    @classmethod
    def load(cls, path):
        stored = torch.load(path)
        return cls(stored["mean"], stored["analysis"])

"""The training stages without captions: latent space, decoder and encoder of the VAE."""
import numpy as np
import torch

from drawn_clips import drawing, scenes

from . import latents, loop, muon, vae


def fit_space(folder, seed):
    """The latent space of this work folder; fitted if it does not exist yet."""
    path = folder / "space.pt"
    if not path.exists():
        latents.Space.fit(seed).save(path)
    return latents.Space.load(path)


def _channels_last(model):
    for parameter in model.parameters():
        if parameter.dim() == 5:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last_3d)
        elif parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


class ClipTask(loop.Task):
    batch = 4

    def __init__(self, folder, seed, device):
        super().__init__(folder, seed, device)
        self.space = fit_space(self.folder, seed)

    def reseed(self, seed):
        self.random = np.random.default_rng(seed)
        torch.manual_seed(seed)

    def clips(self):
        clips = drawing.draw(scenes.sample(self.random, self.batch))
        video = latents.to_unit(clips)
        return tuple(x.to(self.device).contiguous(memory_format=torch.channels_last_3d)
                     for x in (video, self.space.encode(video)))

    def optimizers(self):
        """Muon for convolutions between hidden features, AdamW for everything else."""
        inner, outer = [], []
        for name, parameter in self.model.named_parameters():
            between = parameter.dim() >= 4 and not any(
                part in name for part in ("conv_y", "conv_b", "conv_out", "encoder.conv_in"))
            (inner if between else outer).append(parameter)
        return [(muon.Muon(inner, weight_decay=0.0), self.peak),
                (torch.optim.AdamW(outer, betas=(0.9, 0.97), weight_decay=0.0), self.peak)]


class Decoder(ClipTask):
    """Decodes latents with a little noise, so that small errors of denoising are not visible."""

    peak = 1e-3
    ema_decay = 0.998

    def __init__(self, folder, seed, device):
        super().__init__(folder, seed, device)
        self.model = vae.make(scenes.SIZE).decoder.to(device)
        _channels_last(self.model)

    def loss(self, step):
        video, z = self.clips()
        level = torch.rand(len(z), 1, 1, 1, 1, device=self.device) ** 2 * 0.25
        error = vae.decode(self.model, z + level * torch.randn_like(z)) - video
        square = error.square().mean()
        return square + 0.3 * error.abs().mean(), {"square": float(square)}


class Encoder(ClipTask):
    peak = 1e-3

    def __init__(self, folder, seed, device):
        super().__init__(folder, seed, device)
        self.model = vae.make(scenes.SIZE).encoder.to(device)
        _channels_last(self.model)

    def loss(self, step):
        video, z = self.clips()
        mean, spread = vae.encode(self.model, video).chunk(2, 1)
        square = (mean - z).square().mean()
        return square + 0.01 * (spread + 6).square().mean(), {"square": float(square)}

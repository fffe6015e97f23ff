"""The transformer of image to video, and its training: it continues a picture as a sentence says.

It begins as the transformer of text to video; the weights for the picture's channels begin as zeros.
Text encoder and VAE are those of the model for text to video, and are not changed. Sentences name
only the motion, so that colour, shape, size, place and background must come from the picture.
"""
import pathlib

import numpy as np
import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXTransformer3DModel
from transformers import T5EncoderModel, T5Tokenizer

from drawn_clips import captions, drawing, scenes

from . import denoiser, latents, text, vae

CLIPS = 24576  # number of training clips
WORDINGS = 4  # captions per clip
LENGTH = 16  # tokens per prompt
PICTURE_NOISE = 0.05  # standard deviation of noise on the picture's latents, beside the posterior's


def load_vae(base):
    return AutoencoderKLCogVideoX.from_pretrained(base / "vae").float().eval()


def moments(autoencoder, pictures):
    """[N, 3, H, W] in [-1, 1] → mean and logarithm of the variance, [N, 32, h, w]."""
    return vae.encode(autoencoder.encoder, pictures[:, :, None])[:, :, 0]


@torch.no_grad()
def prepare(base, folder, seed, at_once=512):
    """Draws and encodes the clips, unless they exist: in `folder`,
    clips.npy, float16 [clips, 3, 16, 8, 8]; pictures.npy, float16 [clips, 32, 8, 8], the moments of
    the first frames; motions.npy, int16 [wordings, clips, LENGTH], token ids."""
    if (folder / "motions.npy").exists():
        return
    autoencoder, rng = load_vae(base), np.random.default_rng([seed, 11])
    tokenizer = T5Tokenizer.from_pretrained(base / "tokenizer", legacy=True)
    space = latents.Space.of_encoder(
        lambda video: vae.encode(autoencoder.encoder, video).chunk(2, 1)[0], seed)
    clips = np.lib.format.open_memmap(folder / "clips.npy", "w+", np.float16, (CLIPS, 3, 16, 8, 8))
    pictures = np.lib.format.open_memmap(
        folder / "pictures.npy", "w+", np.float16, (CLIPS, 32, 8, 8))
    ids = np.zeros((WORDINGS, CLIPS, LENGTH), np.int16)
    for at in range(0, CLIPS, at_once):
        some = scenes.sample_pictured(rng, min(at_once, CLIPS - at))
        video = latents.to_unit(drawing.draw(some))
        clips[at:at + len(some)] = space.encode(video).transpose(1, 2).numpy()
        pictures[at:at + len(some)] = moments(autoencoder, video[:, :, 0]).numpy()
        for wording in ids:
            lines = [captions.motion_caption(rng, some, index) for index in range(len(some))]
            wording[at:at + len(some)] = text.encode(tokenizer, lines, LENGTH).numpy()
    clips.flush()
    pictures.flush()
    np.save(folder / "motions.npy", ids)


def make_transformer():
    return denoiser.make_transformer(in_channels=32, text_length=LENGTH)


def widened(base):
    """The transformer of the folder `base` with channels for a picture, whose weights are zeros."""
    model = make_transformer()
    stored = CogVideoXTransformer3DModel.from_pretrained(base / "transformer").float().state_dict()
    name = "patch_embed.proj.weight"
    stored[name] = torch.cat([stored[name], torch.zeros_like(stored[name])], 1)
    model.load_state_dict(stored)
    return model


class Animator(denoiser.Denoiser):
    """base: folder of the checkpoint for text to video."""

    batch = 64  # per worker
    peak = 2e-3
    ema_decay = 0.997
    muon_dtype = torch.bfloat16
    time_power = 0.6

    def __init__(self, base, folder, seed, device):
        self.folder, self.seed, self.device = pathlib.Path(folder), seed, device
        self.text_encoder = T5EncoderModel.from_pretrained(base / "text_encoder").float().to(device)
        self.model = widened(base).to(device)
        self.kept = denoiser.make_scheduler().alphas_cumprod.float().to(device)
        self.latents, self.pictures, self.ids = (
            np.load(self.folder / name, mmap_mode="r")
            for name in ("clips.npy", "pictures.npy", "motions.npy"))

    def loss(self, step):
        with torch.autocast(self.device, torch.bfloat16):
            return super().loss(step)

    def seen(self, noisy, which):
        """Appends the picture's latents, sampled as the pipeline does; zeros in later frames."""
        mean, logarithm = torch.from_numpy(
            self.pictures[which].astype(np.float32)).to(self.device).chunk(2, 1)
        spread = (torch.exp(logarithm) + PICTURE_NOISE ** 2).sqrt()
        picture = torch.zeros_like(noisy)
        picture[:, 0] = mean + spread * torch.randn_like(mean)
        return torch.cat([noisy, picture], 2)

"""The transformer and its training on latents and captions, with the trained text encoder."""
import numpy as np
import torch
from diffusers import CogVideoXDDIMScheduler, CogVideoXTransformer3DModel

from drawn_clips import scenes

from . import listener, loop, muon, pool, text

HEADS, HEAD_WIDTH, LAYERS, TIME_WIDTH = 3, 64, 6, 32
EMPTY = 0.1  # share of empty prompts, for classifier-free guidance


def make_scheduler():
    return CogVideoXDDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False,
        prediction_type="v_prediction", rescale_betas_zero_snr=True, set_alpha_to_one=True,
        snr_shift_scale=1.0, timestep_spacing="trailing")


def make_transformer(in_channels=16, text_length=text.LENGTH):
    model = CogVideoXTransformer3DModel(
        num_attention_heads=HEADS, attention_head_dim=HEAD_WIDTH, in_channels=in_channels,
        out_channels=16,
        time_embed_dim=TIME_WIDTH, text_embed_dim=text.WIDTH, num_layers=LAYERS,
        sample_width=scenes.SIZE // 8, sample_height=scenes.SIZE // 8,
        sample_frames=scenes.FRAMES, max_text_seq_length=text_length,
        spatial_interpolation_scale=1.0, use_rotary_positional_embeddings=False)
    # The adaptive norms start with shift and scale 0 and gates of 0.5; the output starts as zero.
    for block in model.transformer_blocks:
        for norm in (block.norm1, block.norm2):
            torch.nn.init.zeros_(norm.linear.weight)
            shift, scale, gate = torch.zeros(2, 3, norm.linear.bias.numel() // 6).unbind(1)
            norm.linear.bias.data = torch.stack([shift, scale, gate + 0.5], 1).flatten()
    torch.nn.init.zeros_(model.norm_out.linear.weight)
    torch.nn.init.zeros_(model.norm_out.linear.bias)
    torch.nn.init.zeros_(model.proj_out.weight)
    return model


class Denoiser(loop.Task):
    batch = 24  # per worker
    ema_decay = 0.999
    warmup = 100
    peak = 3e-3
    muon_dtype = torch.float32
    time_power = 1.0  # below 1: more of the training at high noise

    def __init__(self, folder, seed, device):
        super().__init__(folder, seed, device)
        self.text_encoder = text.make_encoder(text.load_vocabulary(self.folder)).to(device)
        self.text_encoder.load_state_dict(listener.encoder_weights(self.folder))
        self.model = make_transformer().to(device)
        self.kept = make_scheduler().alphas_cumprod.float().to(device)
        self.latents = pool.load(self.folder)[0]
        self.ids = np.load(self.folder / "pool_ids.npy", mmap_mode="r")

    def reseed(self, seed):
        self.random = np.random.default_rng(seed)
        torch.manual_seed(seed)

    def optimizers(self):
        """Muon for the matrices inside the blocks, AdamW for everything else."""
        inner, outer = muon.matrices(self.model, (".attn1.", ".ff."))
        return [(muon.Muon(inner, dtype=self.muon_dtype), self.peak),
                (torch.optim.AdamW(outer, betas=(0.9, 0.97), weight_decay=0.01), self.peak)]

    def seen(self, noisy, which):
        """What the transformer reads of the noisy latents [N, F, C, h, w] of the clips `which`."""
        return noisy

    def loss(self, step):
        which = self.random.integers(len(self.latents), size=self.batch)
        clean = torch.from_numpy(self.latents[which].astype(np.float32)).to(self.device)
        ids = self.ids[self.random.integers(len(self.ids), size=self.batch), which]
        ids = torch.from_numpy(ids.astype(np.int64)).to(self.device)
        empty = torch.zeros_like(ids[0])
        empty[0] = 1
        ids[torch.rand(self.batch, device=self.device) < EMPTY] = empty
        # Timesteps are spread evenly over the batch, which reduces the variance of the gradient.
        spread = (torch.arange(self.batch, device=self.device) + torch.rand(1).item()) / self.batch
        time = (spread ** self.time_power * len(self.kept)).long().clamp(max=len(self.kept) - 1)
        kept = self.kept[time].view(-1, 1, 1, 1, 1)
        noise = torch.randn_like(clean)
        with torch.no_grad():
            embeds = self.text_encoder(ids).last_hidden_state
        noisy = kept.sqrt() * clean + (1 - kept).sqrt() * noise
        found = self.model(self.seen(noisy, which), embeds, time, return_dict=False)[0]
        wanted = kept.sqrt() * noise - (1 - kept).sqrt() * clean
        error = (found - wanted).square().mean((1, 2, 3, 4))
        third = self.batch // 3
        return error.mean(), {"low": float(error[:third].mean()),
                              "middle": float(error[third:2 * third].mean()),
                              "high": float(error[2 * third:].mean())}

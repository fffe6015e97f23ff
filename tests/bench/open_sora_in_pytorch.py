"""Open-Sora 1.0's own code with PyTorch's fused attention, in place of its GPU packages."""
import pathlib
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/reference"))
import opensora_release  # noqa: E402


def fused(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


def of_samples(q, k, v, p, attn_bias):
    """Of samples that are concatenated along the tokens, in place of xformers."""
    parts = zip(*(x.split(lengths, 1) for x, lengths in (
        (q, attn_bias.queries), (k, attn_bias.keys), (v, attn_bias.keys))))
    return torch.cat([fused(*part) for part in parts], 1)


def attend(self, x):
    """Self-attention of whole sequences, in place of flash_attn."""
    q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.num_heads, self.head_dim).unbind(2)
    return self.proj(fused(self.q_norm(q), self.k_norm(k), v).reshape(x.shape))


def stdit(folder):
    """The module opensora.models.stdit.stdit of a checkout of release 1.0."""
    opensora_release.plain_attention = of_samples
    blocks, module = opensora_release.load(folder, ["models.layers.blocks", "models.stdit.stdit"])
    blocks.Attention.forward = attend
    return module

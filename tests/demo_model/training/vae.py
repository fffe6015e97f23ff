"""diffusers' AutoencoderKLCogVideoX, with a faster forward pass for training.

Modules and parameters are those of diffusers. `decode` and `encode` compute the same values for
1 + 4k frames in one batch: without caches, and with the 1 × 1 convolutions of the spatial norms
before the latents are enlarged. `check` compares them with diffusers' own forward pass.
"""
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLCogVideoX

CHANNELS = (16, 32, 64, 64)
GROUPS = 4


def make(size):
    vae = AutoencoderKLCogVideoX(
        block_out_channels=CHANNELS, layers_per_block=1, norm_num_groups=GROUPS,
        latent_channels=16, sample_height=size, sample_width=size, scaling_factor=1.0)
    # The spatial norm multiplies by this convolution, whose output would be near zero initially.
    for name, parameter in vae.named_parameters():
        if name.endswith("conv_y.conv.bias"):
            torch.nn.init.ones_(parameter)
    return vae


def causal(layer, x):
    first = x[:, :, :1]
    return F.conv3d(torch.cat([first, first, x], 2), layer.conv.weight, layer.conv.bias,
                    padding=(0, 1, 1))


def enlarge(z, like):
    """Enlarges z to the size of `like` by nearest neighbour; the first frame is not repeated."""
    space = like.shape[3] // z.shape[3]
    time = (like.shape[2] - 1) // (z.shape[2] - 1)
    if time > 1:
        z = torch.cat([z[:, :, :1], z[:, :, 1:].repeat_interleave(time, 2)], 2)
    if space > 1:
        n, c, t, h, w = z.shape
        z = z[:, :, :, :, None, :, None].expand(n, c, t, h, space, w, space)
        z = z.reshape(n, c, t, h * space, w * space)
    return z


def spatial_norm(layer, x, z):
    norm = layer.norm_layer
    y = F.conv3d(z, layer.conv_y.conv.weight, layer.conv_y.conv.bias)
    b = F.conv3d(z, layer.conv_b.conv.weight, layer.conv_b.conv.bias)
    x = F.group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps)
    return x * enlarge(y, x) + enlarge(b, x)


def resnet(block, x, z=None):
    norm1, norm2 = block.norm1, block.norm2
    h = F.silu(spatial_norm(norm1, x, z) if z is not None else norm1(x))
    h = causal(block.conv1, h)
    h = F.silu(spatial_norm(norm2, h, z) if z is not None else norm2(h))
    h = causal(block.conv2, h)
    return h + (block.conv_shortcut(x) if block.in_channels != block.out_channels else x)


def per_frame(convolution, x, pad):
    n, c, t, h, w = x.shape
    flat = x.transpose(1, 2).reshape(n * t, c, h, w)
    flat = convolution(F.pad(flat, pad) if any(pad) else flat)
    return flat.reshape(n, t, *flat.shape[1:]).transpose(1, 2)


def upsample(layer, x):
    if layer.compress_time:
        x = torch.cat([x[:, :, :1], x[:, :, 1:].repeat_interleave(2, 2)], 2)
    n, c, t, h, w = x.shape
    x = x[:, :, :, :, None, :, None].expand(n, c, t, h, 2, w, 2).reshape(n, c, t, 2 * h, 2 * w)
    return per_frame(layer.conv, x, (0, 0, 0, 0))


def downsample(layer, x):
    if layer.compress_time:
        rest = x[:, :, 1:]
        x = torch.cat([x[:, :, :1], (rest[:, :, ::2] + rest[:, :, 1::2]) / 2], 2)
    return per_frame(layer.conv, x, (0, 1, 0, 1))


def decode(decoder, z):
    """[N, 16, 1 + k, h, w] → [N, 3, 1 + 4k, 8h, 8w], for even k."""
    x = causal(decoder.conv_in, z)
    for block in decoder.mid_block.resnets:
        x = resnet(block, x, z)
    for up in decoder.up_blocks:
        for block in up.resnets:
            x = resnet(block, x, z)
        for layer in up.upsamplers or ():
            x = upsample(layer, x)
    return causal(decoder.conv_out, F.silu(spatial_norm(decoder.norm_out, x, z)))


def encode(encoder, x):
    """[N, 3, 1 + 4k, H, W] → mean and log variance, [N, 32, 1 + k, H/8, W/8]."""
    x = causal(encoder.conv_in, x)
    for down in encoder.down_blocks:
        for block in down.resnets:
            x = resnet(block, x)
        for layer in down.downsamplers or ():
            x = downsample(layer, x)
    for block in encoder.mid_block.resnets:
        x = resnet(block, x)
    return causal(encoder.conv_out, F.silu(encoder.norm_out(x)))


@torch.no_grad()
def check(vae):
    """Maximum absolute difference between this file and diffusers: (decoder, encoder)."""
    z, x = torch.randn(2, 16, 3, 4, 4), torch.randn(2, 3, 9, 32, 32)
    return (float((decode(vae.decoder, z) - vae.decoder(z)[0]).abs().max()),
            float((encode(vae.encoder, x) - vae.encoder(x)[0]).abs().max()))

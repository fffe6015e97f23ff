"""CogVideoX's transformer in plain PyTorch: stands in for diffusers' CogVideoXTransformer3DModel
where tests/bench/compare_with_pytorch finds no diffusers. CogVideoX 1.0, without image conditioning.

The modules have the names of the tensors in a checkpoint; lib/models/cogvideox/transformer.cpp has
their shapes. tests/tools/plain_cogvideox_test.py compares the results with those of diffusers.
"""
import json
import mmap
import pathlib

import torch
from torch import nn
from torch.nn import functional as F

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}


def tensors_of(path):
    """The tensors of a safetensors file, by name; views of the file's pages."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__" and entry["dtype"] in DTYPES:
            dtype, (first, end) = DTYPES[entry["dtype"]], entry["data_offsets"]
            tensors[name] = torch.frombuffer(data, dtype=dtype, offset=start + first,
                                             count=(end - first) // dtype.itemsize
                                             ).reshape(entry["shape"])
    return tensors


def modulate(x, shift, scale):  # x: [batch, token, channel], shift and scale: [batch, channel]
    return x * (1 + scale[:, None]) + shift[:, None]


class Modulation(nn.Module):
    """Layer norm, and shift, scale (and gate) of each kind of token from the time embedding."""

    def __init__(self, time, channels, chunks, eps):
        super().__init__()
        self.chunks = chunks
        self.linear = nn.Linear(time, chunks * channels)
        self.norm = nn.LayerNorm(channels, eps)

    def forward(self, time):
        return self.linear(F.silu(time)).chunk(self.chunks, 1)


class Attention(nn.Module):
    def __init__(self, channels, head_channels):
        super().__init__()
        self.head_channels = head_channels
        self.to_q, self.to_k, self.to_v = (nn.Linear(channels, channels) for _ in range(3))
        self.norm_q, self.norm_k = (nn.LayerNorm(head_channels, 1e-6) for _ in range(2))
        self.to_out = nn.ModuleList([nn.Linear(channels, channels)])

    def forward(self, x, text_tokens, rotary):  # x: [batch, text and then video token, channel]
        def heads(linear, norm):
            y = norm(linear(x).unflatten(2, (-1, self.head_channels)).transpose(1, 2))
            if rotary is None:
                return y
            text, video = y[:, :, :text_tokens], y[:, :, text_tokens:]
            pairs = video.float().unflatten(3, (-1, 2))  # adjacent channels
            turned = torch.stack([-pairs[..., 1], pairs[..., 0]], 4).flatten(3)
            video = (video.float() * rotary[0] + turned * rotary[1]).to(y.dtype)
            return torch.cat([text, video], 2)

        attended = F.scaled_dot_product_attention(
            heads(self.to_q, self.norm_q), heads(self.to_k, self.norm_k),
            self.to_v(x).unflatten(2, (-1, self.head_channels)).transpose(1, 2))
        return self.to_out[0](attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        head_channels = config["attention_head_dim"]
        channels = config["num_attention_heads"] * head_channels
        modulation = config["time_embed_dim"], channels, 6, config["norm_eps"]
        self.norm1, self.norm2 = Modulation(*modulation), Modulation(*modulation)
        self.attn1 = Attention(channels, head_channels)
        # In diffusers ff.net.0.proj is the product before the GELU, ff.net.2 the one after it.
        up = nn.ModuleDict({"proj": nn.Linear(channels, 4 * channels)})
        self.ff = nn.ModuleDict({"net": nn.ModuleList([up, nn.Identity(),
                                                       nn.Linear(4 * channels, channels)])})

    def forward(self, text, video, time, rotary):
        def attend(x):
            return self.attn1(x, text.shape[1], rotary)

        def feed(x):
            up, _, down = self.ff["net"]
            return down(F.gelu(up["proj"](x), approximate="tanh"))

        for part, change in ((self.norm1, attend), (self.norm2, feed)):
            shift, scale, gate, text_shift, text_scale, text_gate = part(time)
            out = change(torch.cat([modulate(part.norm(text), text_shift, text_scale),
                                    modulate(part.norm(video), shift, scale)], 1))
            text = text + text_gate[:, None] * out[:, :text.shape[1]]
            video = video + gate[:, None] * out[:, text.shape[1]:]
        return text, video


class CogVideoX(nn.Module):
    def __init__(self, config):  # config: of transformer/config.json
        super().__init__()
        self.config = config
        channels = config["num_attention_heads"] * config["attention_head_dim"]
        time, patch, eps = config["time_embed_dim"], config["patch_size"], config["norm_eps"]
        self.patch_embed = nn.ModuleDict({
            "proj": nn.Conv2d(config["in_channels"], channels, patch, patch),
            "text_proj": nn.Linear(config["text_embed_dim"], channels)})
        self.time_embedding = nn.ModuleDict({"linear_1": nn.Linear(channels, time),
                                             "linear_2": nn.Linear(time, time)})
        self.transformer_blocks = nn.ModuleList(
            [Block(config) for _ in range(config["num_layers"])])
        self.norm_final = nn.LayerNorm(channels, eps)
        self.norm_out = Modulation(time, channels, 2, eps)
        self.proj_out = nn.Linear(channels, patch * patch * config["out_channels"])

    def forward(self, hidden_states, timestep, encoder_hidden_states, image_rotary_emb=None):
        """hidden_states: latents, [batch, frame, channel, row, column]; encoder_hidden_states:
        [batch, text token, text channel]; image_rotary_emb: of rotary_tables. Returns
        (prediction,), shaped as the latents."""
        batch, frames, _, rows, columns = hidden_states.shape
        patch, dtype = self.config["patch_size"], hidden_states.dtype
        grid = frames, rows // patch, columns // patch
        time = sines(timestep, self.norm_final.weight.numel(), cosines_first=True).to(dtype)
        time = self.time_embedding["linear_2"](F.silu(self.time_embedding["linear_1"](time)))
        text = self.patch_embed["text_proj"](encoder_hidden_states)
        video = self.patch_embed["proj"](hidden_states.flatten(0, 1))
        video = video.flatten(2).transpose(1, 2).reshape(batch, -1, video.shape[1])
        if image_rotary_emb is None:
            video = video + self.positions(grid, video.device).to(dtype)
        for block in self.transformer_blocks:
            text, video = block(text, video, time, image_rotary_emb)
        shift, scale = self.norm_out(time)
        out = self.proj_out(modulate(self.norm_out.norm(self.norm_final(video)), shift, scale))
        out = out.reshape(batch, *grid, -1, patch, patch).permute(0, 1, 4, 2, 5, 3, 6)
        return (out.reshape(batch, frames, -1, rows, columns),)

    def positions(self, grid, device):
        """The sin-cos table of 2b, [token, channel]: of frame, column and row."""
        if getattr(self, "known", (None,))[0] != grid:
            channels = self.norm_final.weight.numel()
            scales = [self.config[f"{name}_interpolation_scale"]
                      for name in ("temporal", "spatial", "spatial")]
            axes = torch.meshgrid(*(torch.arange(n, device=device, dtype=torch.float32) / scale
                                    for n, scale in zip(grid, scales)), indexing="ij")
            self.known = grid, torch.cat([
                sines(axes[axis].flatten(), channels * parts // 8)
                for axis, parts in ((0, 2), (2, 3), (1, 3))], 1)
        return self.known[1]


def sines(x, channels, cosines_first=False):
    """Sines and cosines, [value, channel], of the values x at channels / 2 frequencies."""
    frequencies = 10000.0 ** (-torch.arange(channels // 2, device=x.device, dtype=torch.float64)
                              / (channels // 2))
    angles = x.double()[:, None] * frequencies
    tables = angles.sin(), angles.cos()
    return torch.cat(tables[::-1] if cosines_first else tables, 1).float()


def rotary_tables(config, grid, device="cpu"):
    """Cosines and sines of 5b, each [token, head channel], of a grid of tokens (frames, rows,
    columns). Rows and columns are interpolated over the crop of the trained grid with the clip's
    shape."""
    frames, rows, columns = grid
    trained = [config[f"sample_{name}"] // config["patch_size"] for name in ("height", "width")]
    if rows / columns > trained[0] / trained[1]:
        crop = trained[0], round(trained[0] / rows * columns)
    else:
        crop = round(trained[1] / columns * rows), trained[1]
    axes = [torch.arange(frames, dtype=torch.float32)]
    for count, extent, length in zip((rows, columns), crop, trained):
        start = round((length - extent) / 2)
        axes.append(torch.linspace(start, (start + extent) * (count - 1) / count, count))
    angles = []
    for axis, parts in zip(torch.meshgrid(*axes, indexing="ij"), (2, 3, 3)):
        channels = config["attention_head_dim"] * parts // 8
        frequencies = 10000.0 ** (-torch.arange(0, channels, 2, dtype=torch.float32) / channels)
        angles.append((axis.flatten()[:, None] * frequencies).repeat_interleave(2, 1))
    angles = torch.cat(angles, 1)
    return angles.cos().to(device), angles.sin().to(device)


def load(folder, dtype, device="cpu"):
    """The transformer of a checkpoint folder. Raises ValueError for kinds that this lacks."""
    config = {"norm_eps": 1e-5, "patch_size": 2, "temporal_interpolation_scale": 1.0,
              "spatial_interpolation_scale": 1.875}
    config |= json.loads(pathlib.Path(folder, "config.json").read_text())
    if config.get("patch_size_t") or config.get("use_learned_positional_embeddings"):
        raise ValueError(f"{folder}: plain_cogvideox.py is for CogVideoX 1.0 from text only")
    with torch.device("meta"):
        model = CogVideoX(config)
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors |= tensors_of(path)
    model.load_state_dict({name: tensor.to(device, dtype) for name, tensor in tensors.items()},
                          assign=True)
    return model.eval()

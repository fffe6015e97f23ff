"""Imports the parts of an Open-Sora release that make_opensora_data.py needs, on the CPU without its GPU packages.

Both releases are the package `opensora`, so only one is loaded at a time. Its __init__ files are not executed, as they
import everything, training included; packages are empty modules with a path. Dependencies for GPUs and training are
replaced: xformers' attention by the plain formula, two layers of timm by equivalent ones, mmengine's registry by a
dict, checkpoint loading and data sets by stubs.
"""
import importlib
import sys
import types
from pathlib import Path

import torch


class BlockDiagonalMask:
    """Number of queries and of keys of each sample; samples are concatenated along the tokens."""

    def __init__(self, queries, keys):
        self.queries, self.keys = queries, keys

    @classmethod
    def from_seqlens(cls, queries, keys):
        return cls(list(queries), list(keys))


def plain_attention(q, k, v, p=0.0, attn_bias=None):
    """q, k, v: [1, token, head, channel]. Each sample attends to its own keys only."""
    assert p == 0.0 and len(attn_bias.queries) == len(attn_bias.keys)
    assert sum(attn_bias.queries) == q.shape[1] and sum(attn_bias.keys) == k.shape[1]
    parts = []
    for one_q, one_k, one_v in zip(q.split(attn_bias.queries, 1), k.split(attn_bias.keys, 1),
                                   v.split(attn_bias.keys, 1)):
        scores = torch.einsum("bqhc,bkhc->bhqk", one_q * q.shape[-1]**-0.5, one_k)
        parts.append(torch.einsum("bhqk,bkhc->bqhc", scores.softmax(-1), one_v))
    return torch.cat(parts, 1)


class Mlp(torch.nn.Module):
    """timm's Mlp (two linear layers), without dropout."""

    def __init__(self, in_features, hidden_features, act_layer, out_features=None, drop=0):
        super().__init__()
        assert drop == 0
        self.fc1 = torch.nn.Linear(in_features, hidden_features)
        self.act = act_layer()
        self.fc2 = torch.nn.Linear(hidden_features, out_features or in_features)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Registry:
    """Replaces mmengine's Registry: classes and functions by name."""

    def __init__(self, name, locations=None):
        self.table = {}

    def register_module(self, name=None):
        def add(what):
            self.table[name or what.__name__] = what
            return what
        return add

    def build(self, config):
        arguments = dict(config)
        return self.table[arguments.pop("type")](**arguments)


def _module(name, **contents):
    module = types.ModuleType(name)
    module.__dict__.update(contents)
    sys.modules[name] = module
    return module


def load(root, names):
    """Imports the modules `names` (without `opensora.`) of the release checked out in `root`."""
    for name in [n for n in sys.modules if n == "opensora" or n.startswith("opensora.")]:
        del sys.modules[name]
    attention = _module("xformers.ops.fmha", BlockDiagonalMask=BlockDiagonalMask)
    operations = _module("xformers.ops", fmha=attention, memory_efficient_attention=plain_attention)
    _module("xformers", ops=operations)
    _module("mmengine.registry", Registry=Registry)
    _module("mmengine")
    _module("colossalai")
    _module("colossalai.utils", get_current_device=lambda: torch.device("cpu"))
    _module("timm")
    _module("timm.models")
    _module("timm.models.layers", DropPath=None)
    _module("timm.models.vision_transformer", Mlp=Mlp)
    source = Path(root) / "opensora"
    for folder in [source, *(f for f in source.rglob("*") if f.is_dir())]:
        name = ".".join(["opensora", *folder.relative_to(source).parts])
        if name not in ("opensora.schedulers.iddpm", "opensora.schedulers.rf"):  # these define the samplers
            _module(name, __path__=[str(folder)])
    _module("opensora.utils.ckpt_utils", load_checkpoint=None)
    sys.modules["opensora.datasets"].__dict__.update(IMG_FPS=120)
    _module("opensora.datasets.utils", read_from_path=None)
    return [importlib.import_module("opensora." + name) for name in names]

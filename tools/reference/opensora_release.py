"""Imports the parts of a released Open-Sora that make_opensora_data.py runs, on the CPU and without its GPU packages.

Both releases are called `opensora`, so only one is loaded at a time. Its package files are not executed (they import
everything, training included); packages are empty shells with a path. What only GPUs or training need is replaced:
xformers' attention by the plain formula, timm's two layers by themselves, mmengine's registry by a table, checkpoints
and data sets by nothing.
"""
import importlib
import sys
import types
from pathlib import Path

import torch


class BlockDiagonalMask:
    """Lengths of the queries and of the keys of each sample, which lie one after the other."""

    def __init__(self, queries, keys):
        self.queries, self.keys = queries, keys

    @classmethod
    def from_seqlens(cls, queries, keys):
        return cls(list(queries), list(keys))


def plain_attention(q, k, v, p=0.0, attn_bias=None):
    """[1, token, head, channel]; every sample attends to its own keys."""
    assert p == 0.0 and len(attn_bias.queries) == len(attn_bias.keys)
    assert sum(attn_bias.queries) == q.shape[1] and sum(attn_bias.keys) == k.shape[1]
    parts = []
    for one_q, one_k, one_v in zip(q.split(attn_bias.queries, 1), k.split(attn_bias.keys, 1),
                                   v.split(attn_bias.keys, 1)):
        scores = torch.einsum("bqhc,bkhc->bhqk", one_q * q.shape[-1]**-0.5, one_k)
        parts.append(torch.einsum("bhqk,bkhc->bqhc", scores.softmax(-1), one_v))
    return torch.cat(parts, 1)


class Mlp(torch.nn.Module):
    """The two layers of timm's class, without dropout."""

    def __init__(self, in_features, hidden_features, act_layer, out_features=None, drop=0):
        super().__init__()
        assert drop == 0
        self.fc1 = torch.nn.Linear(in_features, hidden_features)
        self.act = act_layer()
        self.fc2 = torch.nn.Linear(hidden_features, out_features or in_features)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Registry:
    """Classes and functions by name, as mmengine keeps them."""

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
    """The modules `names` (without `opensora.`) of the release whose checkout is `root`."""
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

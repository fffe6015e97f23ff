"""The Muon optimizer: momentum matrices are approximately orthogonalised before each step.

The update is that of K. Jordan's Muon, https://kellerjordan.github.io/posts/muon/, with the scale
of Liu et al., arXiv:2502.16982, so that learning rates of AdamW can be used. torch.optim.Muon
accepts matrices only; here convolutions are treated as matrices with one row per output channel,
and tensors of equal shape are processed in one batch.
"""
import collections

import torch


def orthogonal(matrices, rounds=5):
    """Newton-Schulz iteration: brings the singular values of matrices [N, rows, columns] near 1."""
    x = matrices / (matrices.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    turned = x.shape[1] > x.shape[2]
    x = x.mT if turned else x
    for _ in range(rounds):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if turned else x


def matrices(model, parts):
    """Splits parameters into matrices whose names contain one of `parts`, and all others."""
    inner, outer = [], []
    for name, parameter in model.named_parameters():
        inside = any(part in name for part in parts) and "relative_attention_bias" not in name
        (inner if inside and parameter.dim() == 2 else outer).append(parameter)
    return inner, outer


class Muon(torch.optim.Optimizer):
    """dtype: of the orthogonalisation; bfloat16 takes a third of the time on CPUs that have it."""

    def __init__(self, parameters, momentum=0.95, weight_decay=0.01, dtype=torch.float32):
        super().__init__(parameters, {"lr": 0.0, "momentum": momentum,
                                      "weight_decay": weight_decay})
        self.dtype = dtype

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = collections.defaultdict(list)
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                step = p.grad.lerp(state["momentum"], group["momentum"])
                shapes[p.shape].append((p, step.reshape(len(p), -1)))
            for pairs in shapes.values():
                steps = orthogonal(torch.stack([step for _, step in pairs]).to(self.dtype)).float()
                scale = 0.2 * max(steps.shape[1:]) ** 0.5
                for (p, _), step in zip(pairs, steps):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(step.reshape(p.shape), alpha=-group["lr"] * scale)

#!/usr/bin/env python3
"""Writes tests/data/train/optimizer.txt: optimizers of torch and learning rates of diffusers.

Needs torch and diffusers (0.36) from PyPI.

    python3 tools/reference/make_optimizer_data.py [tests/data/train]

Lines of an optimizer, numbers in hexadecimal where they are float32:

    optimizer NAME BETA1 BETA2 WEIGHT_DECAY EPSILON MOMENTUM CLIP     (CLIP 0: none)
    start     parameters
    step      RATE NORM, gradients, parameters after the step

and of a schedule: rates NAME WARMUP STEPS CYCLES POWER MIN, the rate of each step. MIN is lr_end of
polynomial; other schedules of diffusers fall to 0, so theirs are MIN + (1 - MIN / RATE) * rate.
"""
import pathlib
import sys

import torch
from diffusers.optimization import get_polynomial_decay_schedule_with_warmup, get_scheduler

ELEMENTS, UPDATES = 9, 4
CASES = [  # name, beta1, beta2, weight decay, epsilon, momentum, clip
    ("adamw", 0.9, 0.95, 1e-4, 1e-8, 0, 1.0),
    ("adamw", 0.9, 0.95, 0.1, 1e-8, 0, 0),
    ("adamw", 0.3, 0.6, 0.0, 1e-3, 0, 0.5),
    ("adamw", 0.0, 0.999, 1.5, 1e-15, 0, 0),
    ("sgd", 0, 0, 0, 0, 0, 0),
    ("sgd", 0, 0, 0, 0, 0, 0.25),
    ("sgd", 0, 0, 0, 0, 0.9, 0),
    ("sgd", 0, 0, 0, 0, 0.5, 0.25),
    ("lion", 0.9, 0.99, 0.1, 0, 0, 0),
    ("lion", 0.95, 0.98, 0.0, 0, 0, 0.5),
    ("lion", 0.3, 0.6, 1.5, 0, 0, 1.0),
]
SCHEDULES = [
    ("constant", 0), ("constant", 4), ("linear", 0), ("linear", 4), ("cosine", 0), ("cosine", 4),
    ("linear", 12), ("cosine", 12), ("constant", 12),
    ("cosine", 2, 1, 1, 1e-5), ("cosine_with_restarts", 0, 3), ("cosine_with_restarts", 3, 2),
    ("cosine_with_restarts", 1, 4, 1, 2e-5), ("polynomial", 0), ("polynomial", 4, 1, 2.5),
    ("polynomial", 1, 1, 0.5, 1e-7), ("polynomial", 12, 1, 2),
]
RATE, STEPS = 3e-4, 10


class Lion:
    """Algorithm 2 of arXiv:2302.06675, which torch does not have."""

    def __init__(self, parameter, beta1, beta2, decay):
        self.parameter, self.beta1, self.beta2, self.decay = parameter, beta1, beta2, decay
        self.momentum = torch.zeros_like(parameter)
        self.param_groups = [{"lr": 0.0}]

    @torch.no_grad()
    def step(self):
        rate, gradient = self.param_groups[0]["lr"], self.parameter.grad
        direction = self.momentum * self.beta1 + gradient * (1 - self.beta1)
        self.parameter.mul_(1 - rate * self.decay).sub_(direction.sign() * rate)
        self.momentum.mul_(self.beta2).add_(gradient, alpha=1 - self.beta2)


def hexadecimal(values):
    return " ".join(float(value).hex() for value in values)


def optimizer_lines(name, beta1, beta2, decay, epsilon, momentum, clip):
    yield f"optimizer {name} {beta1} {beta2} {decay} {epsilon} {momentum} {clip}"
    start = torch.randn(ELEMENTS)
    start[2] = 0
    yield f"start {hexadecimal(start)}"
    parameter = torch.nn.Parameter(start.clone())
    if name == "adamw":
        optimizer = torch.optim.AdamW([parameter], betas=(beta1, beta2), weight_decay=decay,
                                      eps=epsilon, foreach=False)
    elif name == "lion":
        optimizer = Lion(parameter, beta1, beta2, decay)
    else:
        optimizer = torch.optim.SGD([parameter], momentum=momentum, foreach=False)
    for step in range(UPDATES):
        gradient = torch.randn(ELEMENTS) * 10.0 ** (step - 2)
        gradient[3] = 0
        parameter.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_([parameter], clip or float("inf"))
        rate = 0.01 / (step + 1)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        yield (f"step {rate!r} {float(norm).hex()} {hexadecimal(gradient)} "
               f"{hexadecimal(parameter.detach())}")


def rate_line(name, warmup, cycles=1, power=1, minimum=0):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    kind = "constant_with_warmup" if name == "constant" and warmup > 0 else name
    if name == "polynomial":
        scheduler = get_polynomial_decay_schedule_with_warmup(optimizer, warmup, STEPS,
                                                              lr_end=minimum, power=power)
    else:
        scheduler = get_scheduler(kind, optimizer, num_warmup_steps=warmup,
                                  num_training_steps=STEPS, num_cycles=cycles)
    rates = []
    for _ in range(STEPS):
        rate = scheduler.get_last_lr()[0]
        if minimum and name != "polynomial" and len(rates) >= warmup:
            rate = minimum + (1 - minimum / RATE) * rate
        rates.append(rate)
        optimizer.step()
        scheduler.step()
    return f"rates {name} {warmup} {STEPS} {cycles} {power} {minimum!r} " + " ".join(map(repr, rates))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/train")
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line for case in CASES for line in optimizer_lines(*case)]
    lines += [rate_line(*schedule) for schedule in SCHEDULES]
    (folder / "optimizer.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

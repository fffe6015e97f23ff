"""The training loop of all stages: data-parallel workers, by default of one thread each.

If the cores are shared with other work, several processes of one thread are faster than one process
of several threads: they wait for each other once per step instead of once per operation.

The learning rate follows the time spent instead of the number of steps, so that a stage ends with
its time budget. The state is saved every minute; a restarted stage continues from it, and the time
spent before counts.
"""
import csv
import math
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SAVE_EVERY = 60.0  # seconds
LOG_EVERY = 20  # steps


class Task:
    """The training task of a stage. Subclasses set `model` and may override the constants."""

    warmup = 100  # steps
    ema_decay = 0.0  # 0: no moving average of the weights
    clip = 1.0  # maximum norm of the gradient

    def __init__(self, folder, seed, device):
        self.folder, self.seed, self.device = pathlib.Path(folder), seed, device

    def reseed(self, seed):
        """Seeds the random numbers of this worker, for batches, timesteps and noise."""
        raise NotImplementedError

    def optimizers(self):
        """Pairs of optimizer and peak learning rate."""
        raise NotImplementedError

    def loss(self, step):
        """The loss of a new batch, and a dict of values for the log."""
        raise NotImplementedError


def rate(progress, step, warmup):
    return min(1.0, (step + 1) / warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def _averaged(parameters, extra, world):
    """Averages gradients, and the values in `extra`, over the workers."""
    if world == 1:
        return extra
    flat = torch.cat([p.grad.reshape(-1) for p in parameters]
                     + [torch.tensor(extra, device=parameters[0].device)])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in parameters:
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()
    return flat[at:].tolist()


def _save(path, state):
    torch.save(state, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def _work(rank, world, store, make, folder, name, budget, seed, device, threads):
    torch.set_num_threads(threads)
    folder = pathlib.Path(folder)
    if world > 1:
        dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=world)
    torch.manual_seed(seed)  # all workers start with the same weights
    task = make(folder, seed, device)
    parameters = [p for p in task.model.parameters() if p.requires_grad]
    optimizers = task.optimizers()
    ema = [p.detach().clone() for p in parameters] if task.ema_decay else None
    step, spent, path = 0, 0.0, folder / f"{name}.pt"
    if path.exists():
        state = torch.load(path, map_location=device)
        task.model.load_state_dict(state["model"])
        for (optimizer, _), stored in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(stored)
        step, spent = state["step"], state["spent"]
        ema = state["ema"]
    task.reseed(seed + 1000 * step + rank)
    log = open(folder / f"{name}.csv", "a", newline="") if rank == 0 else None
    start, saved, sums, count = time.time() - spent, time.time(), None, 0
    while spent < budget:
        factor = rate(spent / budget, step, task.warmup)
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * factor
        task.model.zero_grad(set_to_none=False)
        loss, numbers = task.loss(step)
        loss.backward()
        numbers = {"loss": float(loss), **numbers}
        # Elapsed time averaged over workers, so that all stop at the same step.
        *values, spent = _averaged(parameters, [*numbers.values(), time.time() - start], world)
        norm = torch.nn.utils.clip_grad_norm_(parameters, task.clip)
        for optimizer, _ in optimizers:
            optimizer.step()
        step += 1
        if ema:
            decay = min(task.ema_decay, (1 + step) / (10 + step))
            torch._foreach_lerp_(ema, [p.detach() for p in parameters], 1 - decay)
        values.append(float(norm))
        sums = values if sums is None else [a + b for a, b in zip(sums, values)]
        count += 1
        if log and count == LOG_EVERY:
            writer = csv.writer(log)
            if log.tell() == 0:
                writer.writerow(["step", "seconds", "rate", *numbers, "gradient"])
            writer.writerow([step, f"{spent:.1f}", f"{factor:.4f}",
                             *(f"{v / count:.6g}" for v in sums)])
            log.flush()
        if count == LOG_EVERY:
            sums, count = None, 0
        if rank == 0 and (time.time() - saved > SAVE_EVERY or spent >= budget):
            saved = time.time()
            _save(path, {"model": task.model.state_dict(), "ema": ema, "step": step,
                         "spent": spent, "optimizers": [o.state_dict() for o, _ in optimizers]})
    if world > 1:
        dist.destroy_process_group()


def train(make, folder, name, budget, seed, device="cpu", workers=1, threads=1):
    """Trains stage `name` until it has taken `budget` seconds in total.

    make(folder, seed, device) returns its Task; it must be a class or function that workers can
    import.
    """
    store = pathlib.Path(folder).resolve() / f"{name}.{os.getpid()}.store"
    arguments = (workers, store, make, folder, name, budget, seed, device, threads)
    if workers == 1:
        _work(0, *arguments)
    else:
        mp.spawn(_work, arguments, nprocs=workers)
    store.unlink(missing_ok=True)


def weights(folder, name):
    """The model's state dict, and the moving average of its parameters (None without ema_decay)."""
    state = torch.load(pathlib.Path(folder) / f"{name}.pt", map_location="cpu")
    return state["model"], state["ema"]


def progress(folder, name):
    """Steps and seconds of training so far; zeros if the stage has not started."""
    path = pathlib.Path(folder) / f"{name}.pt"
    if not path.exists():
        return 0, 0.0
    state = torch.load(path, map_location="cpu")
    return state["step"], state["spent"]

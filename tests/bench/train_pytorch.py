#!/usr/bin/env python3
"""Times a training step of PyTorch on the CPU: LoRA or all weights of a CogVideoX transformer, or all of Open-Sora's.

    tests/bench/train_pytorch.py [--frames 9 --height 240 --width 360 --dtype bfloat16 --layers 2] [--method full]
    tests/bench/train_pytorch.py --open-sora CHECKOUT --frames 16 --height 256 --width 256

The transformer has the width of CogVideoX-2b, --layers layers, and random weights. A step is what
diffusers' examples/cogvideo/train_cogvideox_lora.py does: forward and backward pass with gradient
checkpointing, clipping of the norm, AdamW of the LoRA. For bfloat16 as with its
--mixed_precision bf16: weights are bfloat16, what is trained is float32, and autocast is on. One line with
a JSON object per step, then one with the medians and the peak resident memory of the process, which
includes that of the libraries. The first step does not count. On a busy machine, compare busy seconds
(CPU time of all threads) with --threads 1. Needs torch, diffusers and peft.

--open-sora: the transformer of Open-Sora 1.0 with the width of XL/2, by its own code (git clone --branch v1.0.0
https://github.com/hpcaitech/Open-Sora) with PyTorch's fused attention, checkpointing of each block as in its
training script, and AdamW of all weights. The loss is the mean square error of what is predicted; the released one
adds the bound of a likelihood, which is little work. Needs einops too.
"""
import argparse
import json
import pathlib
import resource
import statistics
import time

import diffusers
import peft
import torch

TEXT_TOKENS = 226
TARGETS = ["to_q", "to_k", "to_v", "to_out.0"]


def transformer_of(layers, dtype, rank, method):
    """What the class has as defaults is CogVideoX-2b."""
    transformer = diffusers.CogVideoXTransformer3DModel(num_layers=layers)
    if method == "full":
        transformer.enable_gradient_checkpointing()
        return transformer.train()
    transformer.requires_grad_(False)
    transformer.to(dtype)
    transformer.enable_gradient_checkpointing()
    transformer.add_adapter(peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=TARGETS))
    diffusers.training_utils.cast_training_params([transformer], dtype=torch.float32)
    return transformer.train()


class Training:
    """A training has transformer, trained, optimizer, shape (of latents) and tokens, and predicts()."""

    def __init__(self, options):
        self.dtype = getattr(torch, options.dtype)
        self.generator = torch.Generator().manual_seed(0)

    def step(self):
        x0, noise = (torch.randn(self.shape, generator=self.generator).to(self.dtype) for _ in range(2))
        timestep = torch.randint(0, 1000, (1,), generator=self.generator)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            out, expected = self.predicts(x0, noise, timestep)
        loss = (out.float() - expected.float()).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


class CogVideoX(Training):
    def __init__(self, options):
        super().__init__(options)
        self.transformer = transformer_of(options.layers, self.dtype, options.rank, options.method)
        self.trained = [p for p in self.transformer.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=1e-4)
        self.scheduler = diffusers.CogVideoXDDIMScheduler(
            beta_schedule="scaled_linear", prediction_type="v_prediction", rescale_betas_zero_snr=True)
        frames = (options.frames - 1) // 4 + 1
        rows, columns = options.height // 16, options.width // 16  # of tokens
        self.shape = (1, frames, 16, 2 * rows, 2 * columns)
        self.tokens = TEXT_TOKENS + frames * rows * columns
        self.text = torch.randn(1, TEXT_TOKENS, 4096, generator=self.generator).to(self.dtype)

    def predicts(self, x0, noise, timestep):
        x = self.scheduler.add_noise(x0, noise, timestep)
        out = self.transformer(x, self.text, timestep, return_dict=False)[0]
        return out, self.scheduler.get_velocity(x0, noise, timestep)


class OpenSora(Training):
    def __init__(self, options):
        import open_sora_in_pytorch
        stdit = open_sora_in_pytorch.stdit(options.open_sora)
        super().__init__(options)
        self.shape = (1, 4, options.frames, options.height // 8, options.width // 8)
        self.tokens = options.frames * (options.height // 16) * (options.width // 16)
        self.transformer = stdit.STDiT(
            input_size=list(self.shape[2:]), hidden_size=1152, num_heads=16, depth=options.layers, class_dropout_prob=0)
        self.transformer.initialize_weights()
        for name, parameter in self.transformer.named_parameters():
            if not parameter.any():  # as if trained: no branch is multiplied by zeros
                torch.nn.init.normal_(parameter, std=0.02)
        for block in self.transformer.blocks:
            block.grad_checkpointing = True
        self.trained = list(self.transformer.parameters())
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-5)
        self.text = torch.randn(1, 1, 120, 4096, generator=self.generator).to(self.dtype)
        self.mask = torch.ones(1, 120, dtype=torch.long)
        self.alphas = torch.linspace(1 - 1e-4, 1 - 0.02, 1000).cumprod(0)

    def predicts(self, x0, noise, timestep):
        alpha = self.alphas[timestep].view(-1, 1, 1, 1, 1)
        x = (alpha.sqrt() * x0 + (1 - alpha).sqrt() * noise).to(self.dtype)
        out = self.transformer(x, timestep, self.text, mask=self.mask)
        return out, torch.cat([noise, noise], 1)


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=9, help="of the video")
    parser.add_argument("--height", type=int, default=240, help="pixels")
    parser.add_argument("--width", type=int, default=360, help="pixels")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--method", choices=["lora", "full"], default="lora", help="what is trained")
    parser.add_argument("--steps", type=int, default=5, help="that count")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--open-sora", type=pathlib.Path, metavar="CHECKOUT", help="of release 1.0: all its weights")
    options = parser.parse_args()
    if options.open_sora:
        options.method = "full"
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    before = peak_bytes()
    training = (OpenSora if options.open_sora else CogVideoX)(options)
    seconds, busy = [], []
    for number in range(options.steps + 1):
        start, processor = time.perf_counter(), time.process_time()
        loss = training.step()
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - processor)
        print(json.dumps({"step": number, "seconds": seconds[-1], "busy_seconds": busy[-1], "loss": loss}), flush=True)
    counted = seconds[1:]
    print(json.dumps({
        **vars(options), "open_sora": bool(options.open_sora), "latents": training.shape, "tokens": training.tokens,
        "median_seconds": statistics.median(counted), "lowest": min(counted), "highest": max(counted),
        "median_busy_seconds": statistics.median(busy[1:]),
        "peak_bytes": peak_bytes(), "peak_bytes_of_libraries": before,
        "versions": {m.__name__: m.__version__ for m in (torch, diffusers, peft)}}))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Rates of PyTorch's own matrix product and attention kernels at the shapes of CogVideoX-2b and 5b
(49 frames of 480 x 720 with guidance: 2 x 17,776 tokens), and of copies within the device's memory:
what a step could reach on this machine. Needs PyTorch and nothing else.

    tests/gpu/torch_rates.py [--dtype bfloat16] [--peak 989]
    tests/gpu/torch_rates.py --device cpu --tiny        # to try this script without a GPU

Prints rows of a Markdown table, each as soon as it is measured: the median of several timings, the
rate, and its share of --peak (TFLOP/s; 989: NVIDIA's figure for dense 16-bit products of an H100
SXM). A kernel that does not serve these shapes or the device is named with the reason.
"""
import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import timed_in_pytorch as timed
import torch

CHANNELS = {"2b": (1920, 30), "5b": (3072, 48)}  # and heads
TOKENS = 17776  # 226 of text and 13 x 30 x 45 of video
PRODUCTS = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}  # in and out / channels


def row(name, seconds, rate, unit, share=""):
    print(f"| {name} | {seconds * 1e3:.3f} ms | {rate:.4g} {unit} | {share} |", flush=True)


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--peak", type=float, default=989, help="TFLOP/s; default: 989")
    parser.add_argument("--tiny", action="store_true", help="128 tokens, two calls of each")
    options = parser.parse_args(words)
    device, dtype = options.device, getattr(torch, options.dtype)
    clock = timed.Clock(device)
    tokens, calls, batch, warm_seconds = (128, 2, 1, 0) if options.tiny else (TOKENS, 5, 10, 0.3)
    print(", ".join(f"{name} {value}" for name, value in timed.versions(device).items()))
    print(f"\n| PyTorch's own, {options.dtype} | median | rate | of {options.peak:g} TFLOP/s |\n"
          "| --- | ---: | ---: | ---: |", flush=True)

    def measure(name, work, function, unit="TFLOP/s"):
        """work: operations or bytes of a call. Calls are timed in batches, as they run in a model:
        the device does not wait for the next launch."""
        def run():
            for _ in range(batch):
                function()

        try:
            function()  # selects algorithms
            warm = 0
            while warm < warm_seconds:  # clocks rise under load
                warm += clock.once(run)
            seconds = statistics.median(clock.once(run) / batch for _ in range(calls))
        except Exception as error:  # this kernel does not serve these shapes or the device
            print(f"| {name} | | {timed.in_a_line(error)} | |", flush=True)
            return
        rate = work / seconds * (1e-12 if unit == "TFLOP/s" else 1e-9)
        row(name, seconds, rate, unit, f"{rate / options.peak:.0%}" if unit == "TFLOP/s" else "")

    with torch.no_grad():
        for model, (channels, heads) in CHANNELS.items():
            for name, (wide_in, wide_out) in PRODUCTS.items():
                rows, n, k = 2 * tokens, wide_out * channels, wide_in * channels
                x, weight, bias = (torch.randn(*shape, device=device, dtype=dtype)
                                   for shape in ((rows, k), (n, k), (n,)))
                measure(f"{model} {name} {rows} x {k} x {n}", 2 * rows * n * k,
                        lambda: torch.nn.functional.linear(x, weight, bias))
                del x, weight
            q, k, v = (torch.randn(2, tokens, heads, 64, device=device, dtype=dtype).transpose(1, 2)
                       for _ in range(3))
            for kernel in ("cudnn", "flash"):
                with timed.only_kernel(kernel):
                    measure(f"{model} attention, {kernel}, 2 x {heads} x {tokens} x 64",
                            4 * 2 * heads * tokens * tokens * 64,
                            lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v))
            del q, k, v
        source = torch.zeros((1 << 20) if options.tiny else (1 << 31), device=device,
                             dtype=torch.uint8)
        target = torch.empty_like(source)
        measure(f"copy of {source.numel() >> 20} MiB, read and written", 2 * source.numel(),
                lambda: target.copy_(source), "GB/s")


if __name__ == "__main__":
    main(sys.argv[1:])

#!/usr/bin/env python3
"""Trains the demo's transformer of image to video and writes it as a Hugging Face folder.

    tests/demo_model/train_demo_image_model.py WORK --export DIR

It begins as the transformer of the checkpoint --base, whose other parts it shares, and learns to
continue drawn pictures as a sentence says. Its state is stored in the folder WORK; started again, it
continues from there. Needs torch, diffusers, transformers and sentencepiece.
"""
import argparse
import functools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=pathlib.Path, help="folder of the state and the log")
    parser.add_argument("--base", type=pathlib.Path, default=ROOT / "inputs/demo_model",
                        help="checkpoint of text to video; default: inputs/demo_model")
    parser.add_argument("--minutes", type=float, default=50)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--export", type=pathlib.Path, help="folder of the checkpoint")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)

    from training import animator, export, loop
    animator.prepare(options.base, options.work, options.seed)
    loop.train(functools.partial(animator.Animator, options.base), options.work, "animator",
               60 * options.minutes, options.seed, options.device, options.workers,
               options.threads)
    steps, seconds = loop.progress(options.work, "animator")
    print(f"animator: {steps} steps in {seconds / 60:.0f} minutes")
    if options.export:
        print(f"{options.export}: {export.write_animator(options.work, options.export)} bytes")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains the small model of the demo on drawn clips and writes it as a Hugging Face folder.

    tests/demo_model/train_demo_model.py WORK --export DIR

Stages store their state in the folder WORK and continue from it when started again. On a few CPU
cores decoder, encoder and the other stages may run at the same time, in separate processes.
Needs torch, diffusers, transformers, sentencepiece, and matplotlib for the plots.
"""
import argparse
import pathlib

STAGES = ["decoder", "encoder", "text", "denoiser", "export", "plot"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=pathlib.Path, help="folder of states, logs and plots")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--minutes", type=float, nargs=4, default=[60, 5, 4, 110],
                        help="budgets of decoder, encoder, text and denoiser")
    parser.add_argument("--workers", type=int, default=2, help="processes of each stage")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--export", type=pathlib.Path, help="folder of the checkpoint")
    parser.add_argument("--score", type=pathlib.Path,
                        help="JSON of tools/score_demo, for the model card of the export")
    parser.add_argument("--notes", type=pathlib.Path, help="Markdown for the end of the card")
    parser.add_argument("--steps", type=int, default=20, help="of the sampler, in the card")
    parser.add_argument("--guidance", type=float, default=6.0, help="in the card")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)

    from training import loop, pool, stages
    minutes = dict(zip(STAGES, options.minutes))

    def train(make, name):
        loop.train(make, options.work, name, 60 * minutes[name], options.seed, options.device,
                   options.workers, options.threads)

    stages.fit_space(options.work, options.seed)
    if "decoder" in options.stages:
        train(stages.Decoder, "decoder")
    if "encoder" in options.stages:
        train(stages.Encoder, "encoder")
    if "text" in options.stages:
        from training import listener
        pool.prepare(options.work, options.seed)
        train(listener.TextEncoder, "text")
        print(f"text: {100 * listener.check(options.work):.1f} % of held-out words are understood")
    if "denoiser" in options.stages:
        from training import denoiser
        train(denoiser.Denoiser, "denoiser")
    if "export" in options.stages and options.export:
        from training import card, export
        print(f"{options.export}: {export.write(options.work, options.export)} bytes")
        if options.score:
            card.write(options.work, options.export, export.assemble(options.work), options.score,
                       options.notes.read_text() if options.notes else "", options.steps,
                       options.guidance)
    if "plot" in options.stages:
        from training import plots
        plots.write(options.work)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/data/config_defaults.json: what diffusers and transformers take for the keys that a
config.json or scheduler_config.json leaves out, by class, from the signatures of the classes. The
test Configs.HaveTheDefaultsOfTheReference compares the readers with it.

    pip install diffusers==0.36 'transformers<5' torch
    python tools/reference/make_config_defaults.py
"""

import inspect
import json
import pathlib

import diffusers
import transformers

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "config_defaults.json"
CLASSES = (diffusers.CogVideoXTransformer3DModel, diffusers.AutoencoderKLCogVideoX,
           diffusers.WanTransformer3DModel, diffusers.AutoencoderKLWan,
           diffusers.AutoencoderKL, diffusers.CogVideoXDDIMScheduler,
           diffusers.CogVideoXDPMScheduler, transformers.T5Config, transformers.UMT5Config)


def defaults(of):
    parameters = inspect.signature(of.__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def main():
    found = {of.__name__: defaults(of) for of in CLASSES}
    found["versions"] = {"diffusers": diffusers.__version__,
                         "transformers": transformers.__version__}
    OUTPUT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes tests/data/saved_pipeline: what save_pretrained of the newest diffusers and transformers
writes for the demo's model, but for the weights and the tokenizer (tokenizer_of_transformers5).

    pip install diffusers 'transformers>=5' torch
    python tools/reference/make_saved_pipeline_data.py
"""

import json
import pathlib
import tempfile

import diffusers
import torch
import transformers

SOURCE = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = SOURCE / "tests" / "data" / "saved_pipeline"


def main():
    print(f"diffusers {diffusers.__version__}, transformers {transformers.__version__}")
    pipeline = diffusers.CogVideoXPipeline.from_pretrained(SOURCE / "inputs" / "demo_model",
                                                           torch_dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        pipeline.save_pretrained(folder)
        for path in sorted(pathlib.Path(folder).rglob("*.json")):
            place = OUTPUT / path.relative_to(folder)
            if place.parent.name == "tokenizer":
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            values = json.loads(path.read_text())
            values.pop("_name_or_path", None)  # of this machine
            place.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

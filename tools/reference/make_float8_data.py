#!/usr/bin/env python3
"""Writes tests/data/float8.json: what PyTorch makes of all 256 bytes of its types of 8 bits. NaN is null.

    pip install "torch==2.15.*"
    python tools/reference/make_float8_data.py
"""
import json
import math
from pathlib import Path

import torch

OUTPUT = Path(__file__).resolve().parents[2] / "tests" / "data" / "float8.json"
TYPES = {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}  # by their names in safetensors


def main():
    numbers = torch.arange(256, dtype=torch.uint8)
    values = {name: [None if math.isnan(x) else str(x) if math.isinf(x) else x
                     for x in numbers.view(dtype).float().tolist()] for name, dtype in TYPES.items()}
    OUTPUT.write_text(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()

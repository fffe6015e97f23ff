#!/usr/bin/python3
"""Tests of tests/bench/plain_cogvideox.py against the results of diffusers in tests/data/cogvideox. Needs
PyTorch and nothing else; without it the status is 77."""
import json
import pathlib
import sys
import unittest

try:
    import torch
except ImportError:
    print(f"left out: {sys.executable} has no torch")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/cogvideox"
sys.path.insert(0, str(ROOT / "tests/bench"))
import plain_cogvideox as plain  # noqa: E402


class PlainCogVideoX(unittest.TestCase):
    def equals_diffusers(self, kind):
        model = plain.load(DATA / kind / "transformer", torch.float32)
        found = plain.tensors_of(DATA / kind / "reference.safetensors")
        clip = json.loads((DATA / kind / "reference.json").read_text())["clips"][0]
        context = found["text.embeddings"][[clip["negative_index"], clip["prompt_index"]]]
        latents, expected = found["transformer.latents"], found["transformer.output"]
        rotary = None
        if model.config["use_rotary_positional_embeddings"]:
            grid = latents.shape[1], latents.shape[3] // 2, latents.shape[4] // 2
            rotary = plain.rotary_tables(model.config, grid)
            for table, name in zip(rotary, ("rotary.cos", "rotary.sin")):
                self.assertLess((table - found[name]).abs().max().item(), 1e-6)
        for call, timestep in enumerate(found["transformer.timestep"].long()):
            with torch.no_grad():
                out, = model(latents[call].repeat(2, 1, 1, 1, 1), timestep.repeat(2), context,
                             rotary)
            error = (out - expected[call]).abs().max() / expected[call].abs().max()
            self.assertLess(error.item(), 1e-5)

    def test_sincos(self):
        self.equals_diffusers("sincos")

    def test_rotary(self):
        self.equals_diffusers("rotary")

    def test_other_kinds_are_refused(self):
        with self.assertRaisesRegex(ValueError, "CogVideoX 1.0"):
            plain.load(DATA / "v1_5/transformer", torch.float32)


if __name__ == "__main__":
    unittest.main()

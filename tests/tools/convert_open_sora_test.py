#!/usr/bin/env python3
"""Tests of tools/convert_open_sora.py on tiny files: what it writes, and what it refuses."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/opensora"
sys.path.insert(0, str(ROOT / "tools"))
try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
import convert_open_sora  # noqa: E402
from open_sora import shapes  # noqa: E402

torch.set_num_threads(1)


class Code:
    """Unpickling this creates a folder, which shows that code in a pickle was executed."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def drawn(expected):
    generator = torch.Generator().manual_seed(3)
    return {name: torch.randn(shape, generator=generator) for name, shape in expected.items()}


def weights(folder, stem="diffusion_pytorch_model"):
    """Name -> tensor, for all tensors of a checkpoint folder, sharded (with an index) or not."""
    index = folder / f"{stem}.safetensors.index.json"
    files = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else {f"{stem}.safetensors"}
    return {name: value for file in files for name, value in load_file(folder / file).items()}


class Convert(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.out = self.work / "out"

    def run_tool(self, *arguments):
        """Exit status and messages of the tool, run in this process: importing torch is slow."""
        said = io.StringIO()
        result = argparse.Namespace(returncode=0)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            try:
                convert_open_sora.main([*map(str, arguments), "--out", str(self.out)])
            except SystemExit as end:
                result.returncode = end.code if isinstance(end.code, int) else 1
                said.write(end.code if isinstance(end.code, str) else "")
        result.stderr = said.getvalue()
        return result

    def old_release(self, change=lambda state: state, name="model.pth", **more):
        """Options for Open-Sora 1.0; `change` modifies the state dict of the transformer."""
        state = change(load_file(DATA / "v1_0/transformer/diffusion_pytorch_model.safetensors"))
        if state is not None:
            torch.save(state, self.work / name)
        given = {"release": "1.0", "transformer": self.work / name, "config": DATA / "v1_0/transformer/config.json",
                 "text-encoder": DATA / "v1_0/text_encoder", "tokenizer": DATA / "v1_0/tokenizer",
                 "vae": DATA / "v1_0/vae", **more}
        return [word for option, value in given.items() for word in (f"--{option}", value)]

    def refused(self, arguments, *words):
        result = self.run_tool(*arguments)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertFalse(self.out.exists() and any(self.out.iterdir()))

    def test_old_release(self):
        result = self.run_tool(*self.old_release(lambda state: {"ema": state}))
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in ("transformer/config.json", "model_index.json"):
            self.assertEqual(json.loads((self.out / name).read_text()), json.loads((DATA / "v1_0" / name).read_text()))
        scheduler = json.loads((self.out / "scheduler/scheduler_config.json").read_text())
        self.assertEqual(scheduler, {"_class_name": "IDDPM", "num_sampling_steps": 100, "cfg_scale": 7.0})
        before, after = weights(DATA / "v1_0/transformer"), weights(self.out / "transformer")
        self.assertEqual(set(before) - set(after), {"pos_embed", "pos_embed_temporal"})
        self.assertEqual(set(after) - set(before), set())
        for name, value in after.items():
            self.assertTrue(torch.equal(value, before[name]) and value.dtype == torch.float16, name)
        self.assertTrue((self.out / "tokenizer/spiece.model").is_file())
        self.assertEqual(set(weights(self.out / "text_encoder", "model")),
                         set(weights(DATA / "v1_0/text_encoder", "model")))
        before, after = weights(DATA / "v1_0/vae"), weights(self.out / "vae")
        attention = "decoder.mid_block.attentions.0."
        self.assertTrue(torch.equal(after[attention + "to_out.0.weight"], before[attention + "proj_attn.weight"]))
        self.assertTrue(torch.equal(after[attention + "to_q.bias"], before[attention + "query.bias"]))
        self.assertEqual(len(after), len(before))

    def test_sizes_of_the_release(self):
        """Runs the tool as a command."""
        result = subprocess.run(
            [sys.executable, "-B", ROOT / "tools/convert_open_sora.py", *self.old_release(size="64x512x512"),
             "--out", self.out], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("complete", result.stdout)
        config = json.loads((self.out / "transformer/config.json").read_text())
        self.assertEqual((config["input_size"], config["space_scale"], config["hidden_size"]), ([64, 64, 64], 1.0, 40))
        self.assertAlmostEqual(config["time_scale"], 2 / 3)

    def test_text_encoder_of_pytorch_files(self):
        """Like DeepFloyd's T5: .bin shards, which also contain a decoder that is not needed."""
        folder = self.work / "t5"
        folder.mkdir()
        state = weights(DATA / "v1_0/text_encoder", "model")
        names = sorted(state)
        state["encoder.embed_tokens.weight"] = state["shared.weight"]
        state["decoder.final_layer_norm.weight"] = state["lm_head.weight"] = torch.ones(3)
        halves = {"pytorch_model-00001-of-00002.bin": names[::2],
                  "pytorch_model-00002-of-00002.bin": sorted(set(state) - set(names[::2]))}
        for file, part in halves.items():
            torch.save({n: state[n] for n in part}, folder / file)
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(
            {"weight_map": {n: file for file, part in halves.items() for n in part}}))
        config = json.loads((DATA / "v1_0/text_encoder/config.json").read_text())
        config["architectures"] = ["T5ForConditionalGeneration"]
        (folder / "config.json").write_text(json.dumps(config))
        result = self.run_tool(*self.old_release(**{"text-encoder": folder, "dtype": "bfloat16"}))
        self.assertEqual(result.returncode, 0, result.stderr)
        after = weights(self.out / "text_encoder", "model")
        self.assertEqual(sorted(after), names)
        self.assertTrue(all(torch.equal(after[n], state[n].bfloat16()) for n in names))
        config = json.loads((self.out / "text_encoder/config.json").read_text())
        self.assertEqual(config["architectures"], ["T5EncoderModel"])

    def test_attention_as_convolutions(self):
        folder = self.work / "vae"
        folder.mkdir()
        state = weights(DATA / "v1_0/vae")
        before = dict(state)
        for name in state:
            if ".attentions." in name and state[name].dim() == 2:
                state[name] = state[name][:, :, None, None].contiguous()
        save_file(state, folder / "diffusion_pytorch_model.safetensors")
        (folder / "config.json").write_text((DATA / "v1_0/vae/config.json").read_text())
        result = self.run_tool(*self.old_release(vae=folder))
        self.assertEqual(result.returncode, 0, result.stderr)
        attention = "encoder.mid_block.attentions.0."
        self.assertTrue(torch.equal(weights(self.out / "vae")[attention + "to_v.weight"],
                                    before[attention + "value.weight"]))

    def test_new_release_in_shards(self):
        config = json.loads((DATA / "v1_2/vae/config.json").read_text())
        vae = self.work / "vae"
        vae.mkdir()
        expected = shapes.autoencoder_kl(config["vae_2d"]).prefixed("spatial_vae.module.")
        expected.update(shapes.vae_temporal(config["vae_temporal"]).prefixed("temporal_vae."))
        state = drawn(expected)
        state.update({n: torch.tensor(config[n]).bfloat16().view(1, 4, 1, 1, 1) for n in ("shift", "scale")})
        save_file(state, vae / "model.safetensors")
        # names equal those of Open-Sora's VAE in the test data
        real = {k: v for k, v in weights(DATA / "v1_2/vae").items() if k not in ("shift", "scale")}
        self.assertEqual({k: tuple(v.shape) for k, v in real.items()}, dict(expected))
        (vae / "config.json").write_text(json.dumps({**config, "model_type": "VideoAutoencoderPipeline"}))
        result = self.run_tool(
            "--release", "1.2", "--transformer", DATA / "v1_2/transformer",
            "--text-encoder", DATA / "v1_2/text_encoder",
            "--tokenizer", DATA / "v1_2/tokenizer", "--vae", vae, "--shard-bytes", 60000)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(len(list((self.out / "transformer").glob("*.safetensors"))), 3)
        for file in self.out.rglob("*.safetensors"):
            self.assertLess(file.stat().st_size, 90000, file)
        before, after = weights(DATA / "v1_2/transformer"), weights(self.out / "transformer")
        self.assertEqual(set(before) - set(after), {"rope.freqs"})
        self.assertTrue(all(torch.equal(after[n], before[n]) for n in after))
        after = weights(self.out / "vae")
        self.assertEqual(set(after), set(expected))
        self.assertTrue(all(torch.equal(after[n], state[n]) for n in after))
        self.assertEqual(json.loads((self.out / "vae/config.json").read_text())["vae_temporal"], config["vae_temporal"])

    def test_code_is_not_run(self):
        marker = self.work / "marker"
        torch.save({"x": Code(marker)}, self.work / "model.pth")
        self.refused(self.old_release(lambda state: None), "model.pth", "more than tensors")
        self.assertFalse(marker.exists())
        torch.load(io.BytesIO((self.work / "model.pth").read_bytes()), weights_only=False)
        self.assertTrue(marker.exists())  # an ordinary torch.load does execute the code

    def test_tensors_that_do_not_fit(self):
        def without(state):
            del state["blocks.1.mlp.fc1.bias"]
            return state
        self.refused(self.old_release(without), "1 tensors missing: blocks.1.mlp.fc1.bias")
        self.refused(self.old_release(lambda state: {**state, "extra": torch.zeros(2)}), "1 tensors unexpected: extra")
        self.refused(self.old_release(lambda state: {**state, "t_block.1.bias": torch.zeros(7)}),
                     "t_block.1.bias [7] instead of [240]")
        self.refused(self.old_release(lambda state: {**state, "step": 3}), "entry 'step' is int")
        self.refused(self.old_release(lambda state: [1]), "no state dict")

    def test_values_that_are_not_finite(self):
        def broken(state):
            state["t_block.1.bias"][3] = float("nan")
            return state
        result = self.run_tool(*self.old_release(broken))
        self.assertEqual(result.returncode, 1)
        self.assertIn("t_block.1.bias has values that are not finite", result.stderr)
        self.assertFalse((self.out / "model_index.json").exists())

    def test_damaged_and_absent_files(self):
        self.refused(self.old_release(lambda state: None), "model.pth", "does not exist")
        (self.work / "model.pth").write_bytes(b"not a checkpoint")
        self.refused(self.old_release(lambda state: None), "model.pth")
        (self.work / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0not json")
        self.refused(self.old_release(lambda state: None, name="model.safetensors"), "no safetensors file")

    def test_parts_that_do_not_belong_together(self):
        self.refused(self.old_release(vae=DATA / "v1_2/vae"), "OpenSoraVAE_V1_2, expected AutoencoderKL")
        self.refused(self.old_release(config=DATA / "v1_2/transformer/config.json"), "STDiT3, expected STDiT")
        self.refused(self.old_release(tokenizer=DATA), "no spiece.model and no tokenizer.json")

    def test_a_tokenizer_of_transformers_5_is_copied(self):
        result = self.run_tool(*self.old_release(tokenizer=DATA.parent / "tokenizer_of_transformers5"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(path.name for path in (self.out / "tokenizer").iterdir()),
                         ["tokenizer.json", "tokenizer_config.json"])

    def test_a_folder_with_something_in_it_is_left_alone(self):
        self.out.mkdir()
        (self.out / "mine").write_text("mine")
        result = self.run_tool(*self.old_release())
        self.assertEqual(result.returncode, 1)
        self.assertIn("not an empty folder", result.stderr)
        self.assertEqual([p.name for p in self.out.iterdir()], ["mine"])

    def test_the_size_must_be_said(self):
        arguments = [a for a in self.old_release() if a not in ("--config", DATA / "v1_0/transformer/config.json")]
        result = self.run_tool(*arguments)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--size", result.stderr)


if __name__ == "__main__":
    unittest.main()

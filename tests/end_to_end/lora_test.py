"""model.lora: clips of a model with LoRAs, on several layouts; resuming, running again, and files
that cannot be used. That weights are those of diffusers is tested by tests/weights and
tests/models."""

import shutil

import h5py
import numpy

from support import (BACKEND, DATA, ERROR, LONG, PROGRAM, Reference, Scratch, clip_file, execute,
                     flip_bit, main, read_clip, read_header, result_files, run, write_header)

LORAS = DATA.parent / "lora"
A, B = ".lora_A.weight", ".lora_B.weight"
DOWN, UP = ".lora_down.weight", ".lora_up.weight"
# How programs name the tensors of a module: what stands before it, its dots, and what follows.
FORMS = [("lora_unet_", "_", DOWN, UP, "kohya"), ("lora_unet__", "_", DOWN, UP, "VideoX-Fun"),
         ("lora_transformer_", "_", DOWN, UP, "kohya"),
         ("diffusion_model.", ".", A, B, "ComfyUI"), ("diffusion_model.", ".", DOWN, UP, "ComfyUI"),
         ("model.diffusion_model.", ".", A, B, "ComfyUI"),
         ("module.", ".", A, B, "diffusers"), ("unet.", ".", A, B, "diffusers"),
         ("module.transformer.", ".", A, B, "diffusers"),
         ("base_model.model.", ".", A, B, "PEFT"),
         ("base_model.model.", ".", ".lora_A.default.weight", ".lora_B.default.weight", "PEFT"),
         ("", ".", ".lora_A.default.weight", ".lora_B.default.weight", "diffusers")]
LAYOUTS = [(2, {"parallel.weights": "sharded"}), (2, {"parallel.weights": "host"}),
           (4, {"parallel.mode": "split"})]
if LONG:
    LAYOUTS += [(1, {"parallel.weights": "host"}), (3, {}), (4, {"parallel.weights": "sharded"})]


class LoraTest(Scratch):
    def setUp(self):
        super().setUp()
        self.reference = Reference("sincos")
        self.output = self.folder / "output"

    def options(self, *loras, output=None, **more):
        options = self.reference.options(output or self.output, sample__steps=2,
                                         prompt__text="A red fox runs.", **more)
        return options | {"model.lora": [str(lora) for lora in loras]}

    def latents(self, *loras, ranks=1, extra=None, **more):
        output = self.folder / f"of {len(list(self.folder.iterdir()))}"
        self.make(self.options(*loras, output=output, **more) | (extra or {}), ranks)
        return read_clip(output)["latents"]

    def test_same_bits_on_every_layout(self):
        loras = (LORAS / "metadata.safetensors:0.7", LORAS / "no_metadata.safetensors",
                 f"{LORAS / 'peft'}:-0.5")
        for dtype in ("float32", "bfloat16"):
            expected = self.latents(*loras, numerics__dtype=dtype)
            plain = self.latents(numerics__dtype=dtype)
            change = numpy.abs(expected - plain).max() / numpy.abs(plain).max()
            self.assertGreater(change, 1e-2)
            for ranks, layout in LAYOUTS:
                numpy.testing.assert_array_equal(
                    self.latents(*loras, ranks=ranks, extra=layout, numerics__dtype=dtype),
                    expected, f"{dtype}, {ranks} ranks, {layout}")

    def test_a_scale_of_zero_changes_nothing(self):
        plain = self.latents()
        numpy.testing.assert_array_equal(self.latents(LORAS / "down_up.safetensors:0"), plain)
        self.assertFalse(numpy.array_equal(self.latents(LORAS / "down_up.safetensors"), plain))

    def test_resume_keeps_clips_of_the_same_lora(self):
        lora = self.folder / "mine.safetensors"
        shutil.copy(LORAS / "metadata.safetensors", lora)
        made = lambda: (clip_file(self.output).stat().st_mtime_ns, clip_file(self.output).read_bytes())
        self.make(self.options(lora))
        before = made()
        self.make(self.options(LORAS / "metadata.safetensors:1.0", output__if_exists="resume"))
        self.assertEqual(made(), before, "the same file under another name")
        for others in ((f"{lora}:0.5",), (lora, lora), ()):
            self.make(self.options(*others, output__if_exists="resume"))
            after = made()
            self.assertNotEqual(after, before, others)
            before = after
        self.make(self.options(f"{lora}:0", output__if_exists="resume"))
        self.assertEqual(made(), before, "a scale of 0 changes no bit")

    def test_from_an_earlier_job(self):
        shutil.copy(LORAS / "metadata.safetensors", self.folder / "mine.safetensors")
        self.make(self.options())
        plain = read_clip(self.output)["latents"]
        options = self.options("mine.safetensors:0.5", output="first")
        words = [word for key, value in options.items()
                 for one in (value if isinstance(value, list) else [value])
                 for word in (f"--{key}", one)]
        first = execute([PROGRAM, "run", "--device.backend", BACKEND or "cpu"] + words,
                        folder=self.folder)
        self.assertEqual(first.status, 0, first)
        self.assertIn("with LoRA mine.safetensors (scale 0.5), float32", first.errors + first.output)
        with h5py.File(self.folder / "first/job.h5") as file:
            saved = file.attrs["options"]
            self.assertIn("mine.safetensors:0.5", saved)
            self.assertIn("model.lora = mine.safetensors:0.5",
                          list(file["provenance"].attrs["options_given"]))
        again = [PROGRAM, "run", "--from", self.folder / "first/job.h5", "--output.path"]
        # From another folder: the relative path is found from that of the first job.
        outcome = execute(again + [self.folder / "second"])
        self.assertEqual(outcome.status, 0, outcome)
        expected = read_clip(self.folder / "first")["latents"]
        numpy.testing.assert_array_equal(read_clip(self.folder / "second")["latents"], expected)
        outcome = execute(again + [self.folder / "without", "--model.lora", "none"])
        self.assertEqual(outcome.status, 0, outcome)
        numpy.testing.assert_array_equal(read_clip(self.folder / "without")["latents"], plain)
        flip_bit(self.folder / "mine.safetensors",
                 (self.folder / "mine.safetensors").stat().st_size - 1)
        outcome = execute(again + [self.folder / "third"])
        self.assertEqual(outcome.status, 65, outcome)
        self.assertIn("the model has the hash", outcome.lines(ERROR)[0])
        self.assertEqual(result_files(self.folder / "third"), [])

    def renamed(self, change, more=()):
        """A copy of a LoRA, whose tensors are called as `change` says, with more of them."""
        header, data = read_header(LORAS / "down_up.safetensors")
        path = self.folder / "renamed.safetensors"
        tensors = {change(name): entry for name, entry in header.items()}
        for name in more:
            tensors[name] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
            data += bytes(4)
        write_header(path, tensors, data)
        return path

    def test_names_of_all_programs(self):
        expected = self.latents(LORAS / "down_up.safetensors:0.7")
        (self.folder / "adapter_config.json").write_text('{"r": 3, "lora_alpha": 3}')
        for prefix, dot, down, up, program in FORMS:
            def change(name):
                module, part, _ = name.removeprefix("transformer.").rsplit(".", 2)
                module = module.removesuffix(".lora").replace(".", dot)
                return prefix + module + (down if part == "down" else up)
            lora = self.renamed(change)
            with self.subTest(prefix=prefix, down=down):
                numpy.testing.assert_array_equal(self.latents(f"{lora}:0.7"), expected)
                shown = execute([PROGRAM, "inspect", lora])
                self.assertEqual(shown.status, 0, shown)
                self.assertIn(f"names: {program} ({prefix}MODULE{down})", shown.output)
                self.assertIn(f"transformer_blocks{dot}*{dot}attn1{dot}to_q (2)", shown.output)

    def test_text_encoders_are_left_out(self):
        expected = self.latents(LORAS / "down_up.safetensors")
        lora = self.renamed(lambda name: name, (
            "text_encoder.layers.0.q.lora.down.weight", "text_encoder.layers.0.q.lora.up.weight",
            "text_encoder.layers.1.q.lora.up.weight"))
        text = "renamed.safetensors: 2 modules of text encoders are not used, only the 8 of"
        outcome = run(self.options(lora))
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.errors.count(text), 1, outcome)
        numpy.testing.assert_array_equal(read_clip(self.output)["latents"], expected)
        self.assertIn(text, execute([PROGRAM, "inspect", lora]).output)
        self.assertIn(text, self.plan(self.options(lora), "--ranks", 2).errors)
        strict = self.options(lora, output=self.folder / "strict") | {"model.lora-strict": "yes"}
        for outcome in (run(strict), self.plan(strict, "--ranks", 2)):
            self.assertEqual(outcome.status, 65, outcome)
            self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
            self.assertIn(text, outcome.lines(ERROR)[0])
            self.assertIn("model.lora-strict", outcome.lines(ERROR)[0])
        self.make(self.options(LORAS / "down_up.safetensors", output=self.folder / "whole") |
                  {"model.lora-strict": "yes"})

    def test_files_that_cannot_be_used(self):
        good = LORAS / "down_up.safetensors"
        text = self.folder / "text.safetensors"
        text.write_text("this is no LoRA")
        whole = good.read_bytes()
        cut = self.folder / "cut.safetensors"
        cut.write_bytes(whole[:-10])
        pickle = self.folder / "mine.bin"
        pickle.write_bytes(b"PK\3\4 and more")
        cases = [
            (self.folder / "absent.safetensors", 66, ["model.lora", "absent.safetensors"]),
            (self.folder, 66, ["pytorch_lora_weights.safetensors"]),
            (text, 65, ["text.safetensors"]),
            (cut, 65, ["cut.safetensors"]),
            (self.reference.model / "transformer/diffusion_pytorch_model.safetensors", 65,
             ["no tensor of a LoRA"]),
            (lambda: self.renamed(lambda name: name.replace("attn1", "attn2")), 65,
             ["transformer_blocks.0.attn2.to_k.lora.down.weight",
              "nearest: 'transformer_blocks.0.attn1.to_k'", "and 5 more"]),
            (lambda: self.renamed(lambda name: name.replace("transformer.", "text_encoder.")), 65,
             ["of text encoders only"]),
            (lambda: self.renamed(lambda name: name.replace(".lora.down.weight", ".lokr_w1")), 65,
             [".lokr_w1", "LoKr (Kronecker products)", "model.transformer"]),
            (lambda: self.renamed(lambda name: name.replace(".lora.down.weight", ".hada_w1_a")), 65,
             [".hada_w1_a", "LoHa (Hadamard products)"]),
            (lambda: self.renamed(lambda name: name, ["transformer.x.dora_scale"]), 65,
             ["transformer.x.dora_scale", "DoRA"]),
            (lambda: self.renamed(lambda name: name.replace(".lora.down.weight", ".matrix_A.0")), 65,
             [".matrix_A.0", "SAT", "tools/export_sat_lora_weight.py"]),
            (pickle, 65, ["mine.bin: not a safetensors file (it is a zip archive, as torch.save writes",
                           "safetensors.torch.save_file"]),
            (f"{good}:nan", 64, ["nan", "a number from"]),
            (f"{good}:1e9", 64, ["1e9"]),
            (f"{good}:", 64, ["a number from"]),
            (":1", 64, ["FILE:SCALE"]),
        ]
        for lora, status, texts in cases:
            lora = lora() if callable(lora) else lora
            for ranks in (1, 2) if lora == cut else (1,):
                outcome = run(self.options(good, lora), ranks)
                self.assertEqual(outcome.status, status, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                for part in texts:
                    self.assertIn(part, outcome.lines(ERROR)[0])
                self.assertFalse(self.output.exists())
            planned = self.plan(self.options(good, lora), "--ranks", 2)
            self.assertEqual(planned.status, status, planned)

    def test_inspect(self):
        lora = LORAS / "metadata.safetensors"
        alone = execute([PROGRAM, "inspect", lora])
        self.assertEqual(alone.status, 0, alone)
        for text in ("8 modules", "rank 2 (1), 4 (7)", "lora_adapter_metadata",
                     "transformer_blocks.*.attn1.to_q (2)"):
            self.assertIn(text, alone.output)
        fitting = execute([PROGRAM, "inspect", self.reference.model, "--lora", f"{lora}:0.5",
                           "--lora", LORAS / "peft"])
        self.assertEqual(fitting.status, 0, fitting)
        self.assertEqual(fitting.output.count("fits the transformer"), 2)
        self.assertIn("times 0.5", fitting.output)
        other = execute([PROGRAM, "inspect", Reference("rotary").model, "--lora", lora])
        self.assertEqual(other.status, 65, other)
        self.assertIn("expected [4, 112]", other.errors)

    def test_plan_foresees_memory(self):
        path = self.folder / "large.safetensors"
        header, data = {}, bytearray()
        for part, shape in (("A", (4096, 80)), ("B", (80, 4096))):
            count = 4 * shape[0] * shape[1]
            header[f"transformer.transformer_blocks.0.attn1.to_q.lora_{part}.weight"] = {
                "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + count]}
            data += bytes(count)
        write_header(path, header, bytes(data))
        plain, changed = [
            self.planned(self.options(*loras, device__backend="cpu"), "--ranks", 1)
            ["by_rank"][0]["memory"]["parts"]["denoise"] for loras in ((), (path,))]
        # Three matrices A, with padded columns, are more than a step takes and gone before it.
        more = 3 * 4096 * 96 * 4
        self.assertLess(plain["working"], more)
        self.assertEqual(changed, plain | {"working": more})


if __name__ == "__main__":
    main()

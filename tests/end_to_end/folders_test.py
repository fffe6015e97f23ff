"""Model folders as people have them: with other classes, names and files than those of released
models, or not a model at all."""

import json
import shutil

import numpy

from support import (DATA, ERROR, WARNING, Reference, Scratch, main, read_clip, read_header, run,
                     write_header)

TRANSFORMER = "transformer/diffusion_pytorch_model.safetensors"
WEIGHTS = (TRANSFORMER, "vae/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors")


def change(path, **keys):
    """Sets keys of a JSON file; None removes them."""
    found = json.loads(path.read_text()) | keys
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


class Folders(Scratch):
    def setUp(self):
        super().setUp()
        self.reference = Reference("sincos")
        self.model = self.folder / "model"
        shutil.copytree(self.reference.model, self.model,
                        ignore=shutil.ignore_patterns("reference.*"))

    def options(self, **more):
        self.output = self.folder / f"out{len(list(self.folder.iterdir()))}"
        return self.reference.options(self.output, **{
            "model__path": self.model, "prompt__text": "one", "sample__steps": 3} | more)

    def latents(self, environment=None, **more):
        options = self.options(**more)
        outcome = run(options, environment=environment)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.lines(ERROR), [], outcome)
        self.outcome = outcome
        return read_clip(self.output)["latents"]

    def check_refused(self, status, *texts, environment=None, **more):
        outcome = run(self.options(**more), environment=environment)
        self.assertEqual(outcome.status, status, outcome)
        errors = outcome.lines(ERROR)
        self.assertEqual(len(errors), 1, outcome)
        for text in texts:
            self.assertIn(str(text), errors[0])
        return errors[0]

    def check_same(self, **more):
        numpy.testing.assert_array_equal(self.latents(**more), self.expected)
        self.assertEqual(self.outcome.lines(WARNING), [], self.outcome)

    def test_the_scheduler_is_that_of_the_index(self):
        of = {kind: self.latents(sample__scheduler=kind) for kind in ("ddim", "dpm")}
        self.assertFalse(numpy.array_equal(of["ddim"], of["dpm"]))
        config = self.model / "scheduler" / "scheduler_config.json"
        for kind, name in (("ddim", "CogVideoXDDIMScheduler"), ("dpm", "CogVideoXDPMScheduler")):
            change(self.model / "model_index.json", scheduler=["diffusers", name])
            for other in ("CogVideoXDDIMScheduler", "CogVideoXDPMScheduler", None):
                change(config, _class_name=other)
                numpy.testing.assert_array_equal(self.latents(), of[kind], f"{name}, {other}")
        # A folder that the user gives is not described by model_index.json.
        elsewhere = self.folder / "scheduler"
        shutil.copytree(self.model / "scheduler", elsewhere)
        change(elsewhere / "scheduler_config.json", _class_name="CogVideoXDDIMScheduler")
        numpy.testing.assert_array_equal(self.latents(model__scheduler=elsewhere), of["ddim"])

    def test_keys_of_the_scheduler_that_are_missing(self):
        config = self.model / "scheduler" / "scheduler_config.json"
        whole = json.loads(config.read_text())
        for key, default in (("timestep_spacing", "leading"), ("rescale_betas_zero_snr", False)):
            config.write_text(json.dumps(whole | {key: default}))
            written = self.latents()
            change(config, **{key: None})
            numpy.testing.assert_array_equal(self.latents(), written, key)
            config.write_text(json.dumps(whole))
            self.assertFalse(numpy.array_equal(self.latents(), written), key)
        change(config, prediction_type=None)
        self.check_refused(65, "scheduler_config.json: prediction_type is \"epsilon\"")

    def test_what_has_no_effect_is_said(self):
        file = self.model / TRANSFORMER
        header, data = read_header(file)
        size = len(data)
        names = [f"transformer_blocks.{i}.attn1.more.weight" for i in range(2)] + ["scale_table"]
        for i, name in enumerate(names):
            header[name] = {"dtype": "F32", "shape": [2],
                            "data_offsets": [size + 8 * i, size + 8 * i + 8]}
        write_header(file, header, data + bytes(8 * len(names)))
        change(self.model / "vae" / "config.json", quantization_config={"bits": 8})
        self.check_refused(65, f"{self.model}/transformer: found 2 tensors inside its blocks",
                           "transformer_blocks.*.attn1.more.weight (2)", "model.unread = allow")
        self.latents(model__unread="allow")
        warnings = self.outcome.lines(WARNING)
        self.assertEqual(len(warnings), 2, self.outcome)
        self.assertIn(f"{self.model}/transformer: 3 tensors are not read: scale_table, "
                      "transformer_blocks.*.attn1.more.weight (2)", warnings[0])
        self.assertIn("vae/config.json: quantization_config is not followed", warnings[1])

    def test_downloads_that_are_not_complete(self):
        for name in WEIGHTS:
            for extension in (".aria2", ".incomplete", ".part"):
                beside = self.model / (name + extension)
                beside.touch()
                self.check_refused(65, name, "its download is not complete", beside.name)
                beside.unlink()

    def test_what_a_file_really_is(self):
        text = (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n",
                'Git LFS pointer in place of the file: run "git lfs pull"')
        page = b"\n<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", "it is a web page"
        for data, told in (text, page, (b"PK\3\4" + bytes(200), "zip archive, as torch.save"),
                           (b"\x80\2}q\0" + bytes(200), "Python pickle, as torch.save"),
                           (b"GGUF\3\0\0\0" + bytes(200), "a GGUF file"),
                           (b"\x1f\x8b\x08\0\0\0\0\0\0\3" + bytes(200), "compressed with gzip")):
            file = self.model / TRANSFORMER
            whole = file.read_bytes()
            file.write_bytes(data)
            self.check_refused(65, f"{file}: not a safetensors file", told)
            file.write_bytes(whole)
            for name in ("spiece.model", "tokenizer.json"):
                tokenizer = self.folder / "tokenizer"
                tokenizer.mkdir()
                (tokenizer / name).write_bytes(data)
                self.check_refused(65, f"{tokenizer / name}: not a", told, model__tokenizer=tokenizer)
                shutil.rmtree(tokenizer)
            lora = self.folder / "lora.safetensors"
            lora.write_bytes(data)
            self.check_refused(65, f"{lora}: not a safetensors file", told, model__lora=lora)

    def test_where_the_model_really_is(self):
        self.expected = self.latents()
        # The cache of the Hugging Face hub.
        home = self.folder / "hub"
        cached = home / "hub" / "models--Someone--Tiny"
        commit = "0123456789abcdef0123456789abcdef01234567"
        shutil.copytree(self.model, cached / "snapshots" / commit)
        self.check_same(model__path=cached)
        self.check_same(model__path="Someone/Tiny", environment={"HF_HOME": str(home)})
        shutil.copytree(self.model, cached / "snapshots" / "89")
        self.check_refused(66, "several snapshots", model__path=cached)
        (cached / "refs").mkdir()
        (cached / "refs" / "main").write_text(commit)
        self.check_same(model__path=cached)
        self.check_same(model__vae=cached / "snapshots" / commit / "vae")
        self.check_refused(66, "model.path: folder Someone/Else not found", "hf download Someone/Else",
                           model__path="Someone/Else", environment={"HF_HOME": str(home)})
        # What is no model.
        self.check_refused(66, "it is a part of the model in", model__path=self.model / "vae")
        self.check_refused(66, "it is a file", model__path=self.model / TRANSFORMER)
        release = self.folder / "release"
        release.mkdir()
        (release / "config.json").write_text('{"architectures": ["STDiT3"]}')
        self.check_refused(66, "tools/convert_open_sora.py", model__path=release)

    def test_what_the_newest_stack_saves(self):
        """diffusers 0.42 and transformers 5 (tools/reference/make_saved_pipeline_data.py)."""
        demo, data = DATA.parents[2] / "inputs" / "demo_model", DATA.parent
        options = {"prompt__text": "a red circle moves", "sample__steps": 2, "sample__frames": 9,
                   "sample__height": 64, "sample__width": 64}
        self.expected = self.latents(model__path=demo, **options)
        saved = self.folder / "saved"
        shutil.copytree(data / "saved_pipeline", saved)
        shutil.copytree(data / "tokenizer_of_transformers5", saved / "tokenizer")
        for name in WEIGHTS:
            shutil.copy(demo / name, saved / name)
        self.check_same(model__path=saved, **options)

    def test_variants(self):
        self.expected = self.latents()
        for name in WEIGHTS:
            file = self.model / name
            file.rename(file.with_suffix(".fp16.safetensors"))
        self.check_refused(66, "model.fp16.safetensors: give --model.variant fp16")
        self.check_same(model__variant="fp16")
        self.check_refused(66, "model.variant: found 'fp8'", model__variant="fp8")
        # A part without such files has its usual ones; these come second.
        vae = self.model / "vae" / "diffusion_pytorch_model.fp16.safetensors"
        vae.rename(self.model / WEIGHTS[1])
        (self.model / TRANSFORMER).write_bytes(b"not read")
        self.check_same(model__variant="fp16")

    def test_a_prefix_of_all_names(self):
        self.expected = self.latents()
        for prefix in ("module.", "model.diffusion_model.", "_orig_mod.module."):
            file = self.model / TRANSFORMER
            header, data = read_header(Reference("sincos").model / TRANSFORMER)
            write_header(file, {name if name == "__metadata__" else prefix + name: entry
                                for name, entry in header.items()}, data)
            self.check_same()


if __name__ == "__main__":
    main()

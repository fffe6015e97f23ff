"""Open-Sora through the program: the results of Open-Sora's own code; bad options are refused.
tests/pipeline/layouts tests layouts."""

import json
import pathlib

import numpy

from support import DATA, ERROR, Scratch, main, read_clip, read_safetensors, run

OPENSORA = DATA.parent / "opensora"


class Reference:
    """A tiny checkpoint of tests/data/opensora with the results of Open-Sora's code."""

    def __init__(self, kind):
        self.model = OPENSORA / kind
        self.facts = json.loads((self.model / "reference.json").read_text())
        self.tensors = read_safetensors(self.model / "reference.safetensors")

    def options(self, output, clip=0, **more):
        facts = self.facts["clips"][clip]
        options = {"model.path": self.model, "output.path": output,
                   "prompt.text": self.facts["texts"][facts["prompt"]],
                   "sample.seed": facts["seed"], "sample.steps": facts["steps"]}
        if "height" in self.facts:
            options |= {"sample.height": self.facts["height"], "sample.width": self.facts["width"],
                        "sample.frames": self.facts["num_frames"], "sample.fps": self.facts["fps"]}
        return options | {key.replace("__", ".").replace("_", "-"): v for key, v in more.items()}


class OpenSora(Scratch):
    def test_equals_open_sora(self):
        for kind in ("v1_0", "v1_2"):
            reference = Reference(kind)
            for index in (0, 1):  # few steps; as many steps as the release uses
                output = self.folder / f"{kind}_{index}"
                clip = read_clip(self.make(reference.options(output, index)))
                with self.subTest(kind=kind, clip=index):
                    expected = reference.tensors[f"clip{index}.latents"].swapaxes(0, 1)
                    error = numpy.abs(clip["latents"] - expected).max() / numpy.abs(expected).max()
                    self.assertLess(error, 1e-3)
                    row = reference.facts["clips"][index]["prompt"]
                    kept = int(reference.tensors["text.mask"][row].sum())
                    ids = reference.tensors["text.tokens"][row][:kept]
                    numpy.testing.assert_array_equal(clip["token_ids"], ids)
                    self.assertEqual(clip["attributes"]["prompt"], reference.facts["texts"][row])
            frames = reference.tensors["clip0.video_frames"].astype(int)
            video = read_clip(self.folder / f"{kind}_0")["video"][frames].astype(int)
            difference = numpy.abs(video - reference.tensors["clip0.video"].astype(int)).max()
            self.assertLessEqual(difference, 2, kind)

    def test_keeps_embeddings_without_padding(self):
        reference = Reference("v1_0")
        clip = read_clip(self.make(reference.options(
            self.folder / "out", sample__steps=2, output__embeddings="yes")))
        kept = int(reference.tensors["text.mask"][0].sum())
        expected = reference.tensors["text.embeddings"][0][:kept]
        self.assertEqual(clip["prompt_embeds"].shape, expected.shape)
        self.assertLess(numpy.abs(clip["prompt_embeds"] - expected).max(),
                        1e-5 * numpy.abs(expected).max())
        self.assertNotIn("negative_prompt_embeds", clip)

    def test_cleans_prompts_unless_told_not_to(self):
        reference = Reference("v1_0")
        prompt = "A SMALL boat   drifts across a quiet lake,at dawn (2160x1440)"

        def ids(name, prompt, **more):
            options = reference.options(self.folder / name, sample__steps=2, output__video="no",
                                        **more) | {"prompt.text": prompt}
            return read_clip(self.make(options))["token_ids"].tolist()

        cleaned = ids("cleaned", prompt)
        self.assertEqual(cleaned, ids("before", "a small boat drifts across a quiet lake, at dawn",
                                      prompt__clean="no"))
        self.assertNotEqual(cleaned, ids("as_it_is", prompt, prompt__clean="no"))

    def test_refuses_what_the_model_has_not(self):
        reference = Reference("v1_0")
        for more, said in (({"prompt.negative": "rain"}, "prompt.negative"),
                           ({"sample.scheduler": "ddim"}, "sample.scheduler"),
                           ({"sample.dynamic-guidance": "yes"}, "sample.dynamic-guidance"),
                           ({"parallel.cfg": 2}, "parallel.cfg"),
                           ({"parallel.ring": 2}, "parallel.ring"),
                           ({"sample.height": 104}, "sample.height"),
                           ({"sample.steps": 1}, "steps")):
            outcome = run(reference.options(self.folder / "out") | more)
            with self.subTest(**more):
                self.assertEqual(outcome.status, 64, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn(said, outcome.lines(ERROR)[0])
        self.assertFalse(pathlib.Path(self.folder / "out").exists())


if __name__ == "__main__":
    main()

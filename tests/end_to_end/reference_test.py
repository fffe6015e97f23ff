"""Compares the program with the reference pipeline (diffusers): tokens, latents and videos of the
tiny checkpoints."""

import numpy

from support import (BACKEND, KINDS, LONG, WARNING, Reference, Scratch, check_bfloat16_errors, main,
                     read_clip, relative, run)


class ReferenceTest(Scratch):
    def clips(self, reference, dtype):
        """Makes the clips of the reference. Yields for each: index, clip, expected latents, video,
        expected video (the frames that the reference has, as float32)."""
        output = self.make(reference.options(self.folder / dtype, numerics__dtype=dtype,
                                             prompt__file=reference.prompt_file(self.folder)))
        padding = reference.facts["padding_latent_frames"]
        for index in range(len(reference.facts["clips"])):
            expected = reference.tensors
            latents = expected[f"clip{index}.latents"][padding:]
            frames = expected[f"clip{index}.video_frames"].astype(int)
            clip = read_clip(output, index)
            self.assertEqual(clip["latents"].shape, latents.shape)
            video = expected[f"clip{index}.video"].astype(numpy.float32)
            self.assertEqual(clip["video"].shape, (4 * len(latents) - 3 * (len(latents) % 2),
                                                   *video.shape[1:]))
            yield index, clip, latents, clip["video"][frames].astype(numpy.float32), video

    def check_float32(self, kind):
        reference = Reference(kind)
        for index, clip, latents, video, expected in self.clips(reference, "float32"):
            with self.subTest(clip=index):
                facts = reference.facts["clips"][index]
                tokens = reference.tensors["text.tokens"][facts["prompt_index"]]
                numpy.testing.assert_array_equal(clip["token_ids"], tokens)
                self.assertLessEqual(relative(clip["latents"], latents), 2e-4)
                self.assertLessEqual(numpy.abs(video - expected).max(), 2)
                self.assertGreater(expected.std(), 5)  # the reference is not uniformly grey
                self.assertEqual(clip["attributes"]["seed"], facts["seed"])
                self.assertEqual(clip["attributes"]["prompt"], facts["prompt"])
                self.assertEqual(clip["attributes"]["negative_prompt"], facts["negative_prompt"])

    def check_bfloat16(self, kind):
        reference = Reference(kind)
        for index, clip, latents, video, expected in self.clips(reference, "bfloat16"):
            with self.subTest(clip=index):
                check_bfloat16_errors(self, f"{kind} clip {index}", reference.bf16["clips"][index],
                                      clip["latents"], latents, video, expected)
                self.assertEqual(clip["attributes"]["dtype"], "bfloat16")

    def test_embeddings(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                reference = Reference(kind)
                output = self.make(reference.options(
                    self.folder / kind, prompt__file=reference.prompt_file(self.folder),
                    output__embeddings="yes", output__video="no"))
                expected = reference.tensors["text.embeddings"]
                for index, facts in enumerate(reference.facts["clips"]):
                    clip = read_clip(output, index)
                    for name, row in (("prompt_embeds", facts["prompt_index"]),
                                      ("negative_prompt_embeds", facts["negative_index"])):
                        self.assertEqual(clip[name].shape, expected[row].shape)
                        # GPUs sum in another order than the CPU code of both programs.
                        self.assertLessEqual(relative(clip[name], expected[row]),
                                             2e-5 if BACKEND else 1e-5)

    def test_a_long_prompt_is_cut_as_the_reference_cuts_it(self):
        reference = Reference("sincos")
        row = 3
        text = reference.facts["texts"][row]
        output = self.folder / "long"
        for ranks in (1, 3) if LONG else (1,):
            with self.subTest(ranks=ranks):
                outcome = run(reference.options(output, prompt__text=text,
                                                output__if_exists="replace"), ranks)
                self.assertEqual(outcome.status, 0, outcome)
                warnings = [w for w in outcome.lines(WARNING) if "cut off: " in w]
                self.assertEqual(len(warnings), 1, outcome)
                # The warning quotes the part that is cut off, not the beginning of the prompt.
                self.assertIn("lamps in their hands while it begins to snow.'", warnings[0])
                self.assertNotIn("The camera rises", warnings[0])
                clip = read_clip(output)
                numpy.testing.assert_array_equal(clip["token_ids"],
                                                 reference.tensors["text.tokens"][row])
                self.assertEqual(clip["attributes"]["prompt"], text)

    def test_guidance_off_needs_no_negative_prompt(self):
        reference = Reference("rotary")
        made = {}
        for name, more in {
                "off": dict(sample__guidance=1),
                "off, negative given": dict(sample__guidance=1, prompt__negative="blurry"),
                "on": {},
                "on, negative given": dict(prompt__negative="blurry"),
        }.items():
            output = self.make(reference.options(
                self.folder / name, prompt__text=reference.prompts()[0],
                output__embeddings="yes", **more), ranks=2 if LONG and "given" in name else 1)
            made[name] = read_clip(output)
            self.assertTrue(numpy.isfinite(made[name]["latents"]).all())
        self.assertNotIn("negative_prompt_embeds", made["off"])
        self.assertIn("negative_prompt_embeds", made["on"])
        numpy.testing.assert_array_equal(made["off"]["latents"],
                                         made["off, negative given"]["latents"])
        for one, other in (("off", "on"), ("on", "on, negative given")):
            self.assertGreater(relative(made[one]["latents"], made[other]["latents"]), 1e-2)


for kind_ in KINDS:
    for check in ("float32", "bfloat16"):
        setattr(ReferenceTest, f"test_{kind_}_{check}",
                lambda self, k=kind_, c=check: getattr(self, f"check_{c}")(k))

if __name__ == "__main__":
    main()

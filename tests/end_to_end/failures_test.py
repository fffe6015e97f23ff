"""Clips whose numbers are not finite: they fail alone, and the others keep their bits."""

import json
import shutil

import h5py
import numpy

from support import (DATA, ERROR, LONG, Reference, Scratch, clip_file, job_status, main,
                     names_of_states, read_clip, read_header, run, write_header)
from tables import table

FAILED = 65
MACHINE = DATA.parent / "machine.cfg"
PROMPTS = ["a fox", "two boats", "an old man", "quartz of jazz", "rain", "light", "a lake at noon",
           "snow", "a tree", "birds"]
POISONED = 3  # its place in PROMPTS; a token of it is in no other prompt
STEPS = 4


class FailuresTest(Scratch):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        shutil.copytree(Reference("rotary").model, self.model)

    def options(self, output, **more):
        return Reference("rotary").options(self.folder / output, **{
            "sample__steps": STEPS, "prompt__text": PROMPTS} | more)

    def poison(self, part, tensor, where):
        """Sets values of a bfloat16 tensor in a part of the model to NaN; where: a slice of them."""
        for path in (self.model / part).glob("*.safetensors"):
            header, data = read_header(path)
            if tensor not in header:
                continue
            begin, end = header[tensor]["data_offsets"]
            self.assertEqual(header[tensor]["dtype"], "BF16")
            values = numpy.frombuffer(data[begin:end], numpy.uint16).copy()
            values.reshape(header[tensor]["shape"])[where] = 0x7FC0
            write_header(path, header, data[:begin] + values.tobytes() + data[end:])
            return
        self.fail(f"{part} has no {tensor}")

    def states(self, output):
        with h5py.File(self.folder / output / "job.h5") as file:
            self.assertEqual(set(file["states"]), {"clip", "state", "reason"})
            rows = table(file, "states")
            self.assertEqual(list(rows["clip"]), list(range(len(rows))))
            return (file.attrs["status"], names_of_states(rows),
                    [reason.decode() for reason in rows["reason"]])

    def test_a_poisoned_prompt_leaves_the_others_their_bits(self):
        self.make(self.options("expected"))
        expected = [read_clip(self.folder / "expected", i) for i in range(len(PROMPTS))]
        ids = [set(clip["token_ids"]) for clip in expected]
        own = ids[POISONED].difference(*(ids[:POISONED] + ids[POISONED + 1:]))
        self.assertTrue(own, "every token of the prompt is in another one, too")
        self.poison("text_encoder", "shared.weight", own.pop())
        reason = "NaN or infinite values in the text embeddings"
        layouts = ((1, {}), (1, {"sample__batch": 4}), (3, {"parallel__mode": "split"}),
                   (4, {"parallel__replicas": 2, "parallel__mode": "phased"}))
        for ranks, layout in layouts if LONG else layouts[1:3]:
            with self.subTest(ranks=ranks, layout=layout):
                shutil.rmtree(self.folder / "output", ignore_errors=True)
                outcome = run(self.options("output", model__path=self.model, **layout), ranks)
                self.assertEqual(outcome.status, FAILED, outcome)
                errors = outcome.lines(ERROR)
                self.assertEqual(len(errors), 1, outcome)
                self.assertIn(f"clip {POISONED}: {reason}", errors[0])
                self.assertIn(f"1 of {len(PROMPTS)} clips have failed, 9 are complete",
                              outcome.errors)
                status, states, reasons = self.states("output")
                self.assertEqual(status, "failed")
                for index, clip in enumerate(expected):
                    if index == POISONED:
                        self.assertEqual(states[index], "failed")
                        self.assertIn(reason, reasons[index])
                        self.assertFalse(clip_file(self.folder / "output", index).exists())
                        continue
                    self.assertEqual((states[index], reasons[index]), ("complete", ""))
                    made = read_clip(self.folder / "output", index)
                    for name in ("latents", "video"):
                        self.assertEqual(made[name].tobytes(), clip[name].tobytes(),
                                         f"{name} of clip {index}")

        # Run again, only the clip that failed is made, and fails again. A file of another job, here
        # with other weights, is not shown as this clip.
        path = clip_file(self.folder / "output", POISONED)
        shutil.copy(clip_file(self.folder / "expected", POISONED), path)
        outcome = run(self.options("output", model__path=self.model, output__if_exists="resume"), 2)
        self.assertEqual(outcome.status, FAILED, outcome)
        self.assertIn("9 of 10 clips are complete already", outcome.errors)
        self.assertEqual(self.states("output")[1][POISONED], "failed")
        self.assertFalse(path.exists())
        self.assertTrue((path.parents[1] / "earlier" / path.name).exists())
        with h5py.File(self.folder / "output" / "job.h5") as job:
            self.assertNotIn(path.stem, job["clips"])

    def test_clips_fail_while_layouts_are_timed(self):
        tune = {"parallel.tune": "yes", "device.machine": MACHINE}
        prompts = {"prompt__text": PROMPTS[:POISONED + 1], "sample__steps": 14}
        self.make(self.options("expected", **prompts))
        expected = [read_clip(self.folder / "expected", i) for i in range(POISONED + 1)]
        ids = [set(clip["token_ids"]) for clip in expected]
        self.poison("text_encoder", "shared.weight", ids[POISONED].difference(*ids[:POISONED]).pop())
        options = self.options("output", model__path=self.model, **prompts)
        outcome = run(options | tune | {"parallel.mode": "phased"}, 4)
        self.assertEqual(outcome.status, FAILED, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        self.assertIn("tuning: kept ", outcome.errors)
        status, states, reasons = self.states("output")
        self.assertEqual((status, states), ("failed", ["complete"] * POISONED + ["failed"]))
        self.assertIn("NaN or infinite values in the text embeddings", reasons[POISONED])
        for index in range(POISONED):
            made = read_clip(self.folder / "output", index)
            for name in ("latents", "video"):
                self.assertEqual(made[name].tobytes(), expected[index][name].tobytes(), name)

        self.poison("transformer", "proj_out.bias", slice(0, 1))
        options["output.path"] = self.folder / "all"
        outcome = run(options | tune, 3)
        self.assertEqual(outcome.status, FAILED, outcome)
        self.assertEqual(self.states("all")[:2], ("failed", ["failed"] * (POISONED + 1)))

    def test_an_encoder_that_fails_leaves_clips_without_a_video_their_bits(self):
        prompts = self.folder / "clips.jsonl"
        video = Reference("rotary").model.parent / "media" / "long.mkv"
        prompts.write_text("".join(json.dumps(line) + "\n" for line in (
            {"prompt": "a fox"}, {"prompt": "rain", "video": str(video), "frames": 9},
            {"prompt": "snow"})))
        job = {"prompt__file": prompts, "prompt__text": []}
        self.make(self.options("expected", **job))
        self.poison("vae", "encoder.conv_out.conv.bias", slice(0, 1))
        layouts = ((1, {}), (3, {"parallel__mode": "split"}), (4, {"parallel__replicas": 2}))
        for ranks, layout in layouts:
            with self.subTest(ranks=ranks, layout=layout):
                shutil.rmtree(self.folder / "output", ignore_errors=True)
                outcome = run(self.options("output", model__path=self.model, **job, **layout), ranks)
                self.assertEqual(outcome.status, FAILED, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn("clip 1: NaN or infinite values in the latents of the video",
                              outcome.errors)
                self.assertEqual(self.states("output")[1], ["complete", "failed", "complete"])
                self.assertFalse(clip_file(self.folder / "output", 1).exists())
                for index in (0, 2):
                    for name in ("latents", "video"):
                        self.assertEqual(read_clip(self.folder / "output", index)[name].tobytes(),
                                         read_clip(self.folder / "expected", index)[name].tobytes())

    def test_strict_ends_the_job_at_once(self):
        self.poison("text_encoder", "shared.weight", slice(None))
        for ranks, layout in ((1, {}), (3, {}), (4, {"parallel__mode": "split"})):
            shutil.rmtree(self.folder / "output", ignore_errors=True)
            outcome = run(self.options("output", model__path=self.model, output__strict="yes",
                                       **layout), ranks)
            self.assertEqual(outcome.status, FAILED, outcome)
            self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
            self.assertIn("clip 0: NaN or infinite values in the text embeddings (output.strict",
                          outcome.errors)
            self.assertEqual(job_status(self.folder / "output"), "unfinished")

    def test_weights_that_poison_the_latents(self):
        self.poison("transformer", "patch_embed.proj.bias", 0)
        for ranks, layout in ((1, {"sample__batch": 2}), (3, {}), (4, {"parallel__mode": "split"})):
            with self.subTest(ranks=ranks, layout=layout):
                shutil.rmtree(self.folder / "output", ignore_errors=True)
                options = self.options("output", model__path=self.model, restart__every=1,
                                       prompt__text=PROMPTS[:3], **layout)
                outcome = run(options, ranks)
                self.assertEqual(outcome.status, FAILED, outcome)
                reason = f"NaN or infinite values in the latents after step 1 of {STEPS}"
                self.assertEqual(len(outcome.lines(ERROR)), 3, outcome)
                for index in range(3):
                    self.assertEqual(outcome.errors.count(f"clip {index}: {reason}"), 1, outcome)
                status, states, reasons = self.states("output")
                self.assertEqual((status, states), ("failed", 3 * ["failed"]))
                for text in reasons:
                    self.assertRegex(text, f"{reason} on rank [0-{ranks - 1}]")
                self.assertEqual(list((self.folder / "output").glob("*/0*.h5")), [])

    def test_weights_that_poison_the_video(self):
        self.poison("vae", "decoder.conv_out.conv.bias", 1)
        for ranks in (1, 3):
            shutil.rmtree(self.folder / "output", ignore_errors=True)
            options = self.options("output", model__path=self.model, prompt__text=PROMPTS[:2])
            outcome = run(options, ranks)
            self.assertEqual(outcome.status, FAILED, outcome)
            self.assertEqual(len(outcome.lines(ERROR)), 2, outcome)
            status, states, reasons = self.states("output")
            self.assertEqual((status, states), ("failed", 2 * ["failed"]))
            for text in reasons:
                self.assertRegex(text, "NaN or infinite values in the decoded video on rank 0")
        outcome = run(options | {"output.if-exists": "replace", "output.video": "no"}, 2)
        self.assertEqual(outcome.status, 0, outcome)


if __name__ == "__main__":
    main()

"""Clips denoised in one batch (sample.batch) have the bits that they have alone; resumed jobs."""

import json

import h5py

import opensora_test
import support
from support import ERROR, LONG, Scratch, clip_file, main, read_clip, run
from tables import table

PROMPTS = ["A red fox runs.",
           "Waves break on black rocks.",
           "A small boat drifts across a quiet lake at dawn.",
           "A lamp.",
           "The camera rises over a long river between two green hills."]
STEPS = 3


class Batches(Scratch):
    def prompt_file(self):
        """Five clips; the third has another number of frames and is a batch of its own."""
        path = self.folder / "prompts.jsonl"
        lines = [{"prompt": text, "seed": 100 + 3 * i} for i, text in enumerate(PROMPTS)]
        lines[2]["frames"] = 21
        path.write_text("\n".join(map(json.dumps, lines)) + "\n")
        return path

    def options(self, reference, output, **more):
        options = reference.options(self.folder / output) | {
            "prompt.file": self.prompt_file(), "sample.steps": STEPS}
        for key in ("prompt.text", "sample.seed"):
            options.pop(key, None)
        return options | more

    def bits(self, output):
        clips = [read_clip(self.folder / output, i) for i in range(len(PROMPTS))]
        return [(clip["latents"].tobytes(), clip["video"].tobytes()) for clip in clips]

    def steps(self, output):
        """rank -> [(clip, step)] of its denoising steps in the trace."""
        with h5py.File(self.folder / output / "trace.h5", "r") as file:
            spans = table(file, "spans")
        found = {}
        for span in spans[spans["name"] == b"denoise_step"]:
            found.setdefault(int(span["rank"]), []).append((int(span["clip"]), int(span["step"])))
        return found

    def test_steps_are_of_batches(self):
        # tests/pipeline/layouts compares the bits for all layouts.
        self.make(self.options(support.Reference("rotary"), "alone"))
        self.make(self.options(support.Reference("rotary"), "batch") | {"sample.batch": 3})
        self.assertEqual(self.bits("batch"), self.bits("alone"))
        # Batches: clips 0, 1 and 3; clip 2; clip 4. Spans name the first clip of a batch.
        steps = self.steps("batch")[0]
        self.assertEqual({clip for clip, _ in steps}, {0, 2, 4})
        self.assertEqual(len(steps), 3 * STEPS)

    def test_resume_makes_what_is_missing(self):
        for name, reference in (("o", opensora_test.Reference("v1_0")),
                                ("c", support.Reference("sincos"))):
            output = self.make(self.options(reference, name))
            before = self.bits(name)
            kept = [clip_file(output, i).stat().st_mtime_ns for i in (1, 2)]
            for i in (0, 3, 4):
                clip_file(output, i).unlink()
            outcome = run(self.options(reference, name) |
                          {"sample.batch": 2, "output.if-exists": "resume"}, 2 if LONG else 1)
            self.assertEqual(outcome.status, 0, outcome)
            self.assertIn("2 of 5 clips are complete already", outcome.errors)
            self.assertEqual([clip_file(output, i).stat().st_mtime_ns for i in (1, 2)], kept)
            self.assertEqual(self.bits(name), before)
            self.assertEqual({clip for clip, _ in self.steps(name)[0]}, {0, 4})

    def test_refuses_other_numbers(self):
        for number in ("0", "-1", "1001", "many"):
            outcome = run(self.options(support.Reference("sincos"), "out") |
                          {"sample.batch": number})
            self.assertEqual(outcome.status, 64, outcome)
            self.assertIn("--sample.batch: found '" + number + "'", outcome.lines(ERROR)[0])


if __name__ == "__main__":
    main()

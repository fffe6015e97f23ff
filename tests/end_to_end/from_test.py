"""run --from: a job is run again from its job.h5 alone."""

import json
import shutil

import h5py
import numpy

from support import (ERROR, MPIRUN, PROGRAM, Reference, Scratch, arguments, clip_file, execute,
                     flip_bit, main, read_attributes, read_clip, read_header, state_of)

# Clips of unlike sizes, lengths, steps, seeds and texts.
LINES = [
    {"prompt": "Ein Café", "seed": 2**64 - 1, "guidance": 6.1},
    {"prompt": "two\nlines", "negative_prompt": "dark", "frames": 8, "steps": 2},
    {"token_ids": [5, 9, 1], "height": 96, "width": 64, "fps": 7.5},
]
# Attributes that say how a clip was made on this occasion.
OF_THE_RUN = ("layout", "wall_seconds", "model")


class FromTest(Scratch):
    def setUp(self):
        super().setUp()
        self.reference = Reference("rotary")
        self.model = self.folder / "model"
        shutil.copytree(self.reference.model, self.model)
        self.prompts = self.folder / "prompts.jsonl"
        self.prompts.write_text("".join(json.dumps(line) + "\n" for line in LINES))

    def make_first(self):
        """The job that is run again, with relative paths; its prompt file is removed."""
        options = self.reference.options("first", model__path="model", prompt__negative="grey",
                                         prompt__file="prompts.jsonl", sample__steps=3,
                                         output__embeddings="yes", device__backend="cpu")
        outcome = execute([PROGRAM, "run"] + arguments(options), folder=self.folder)
        self.assertEqual(outcome.status, 0, outcome)
        self.prompts.unlink()
        return self.folder / "first"

    def again(self, first, output, *words, ranks=1):
        launcher = [MPIRUN, "-n", ranks] if ranks > 1 else []
        return execute(launcher + [PROGRAM, "run", "--from", first / "job.h5", "--output.path",
                                   self.folder / output, *words])

    def check_same(self, one, other):
        for index in range(len(LINES)):
            a, b = (read_clip(output, index) for output in (one, other))
            attributes = [{name: value for name, value in clip.pop("attributes").items()
                           if name not in OF_THE_RUN} for clip in (a, b)]
            self.assertEqual(*attributes)
            self.assertEqual(set(a), set(b))
            for name in a:
                numpy.testing.assert_array_equal(a[name], b[name])

    def refused(self, outcome, status, *texts):
        self.assertEqual(outcome.status, status, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        for text in texts:
            self.assertIn(text, outcome.lines(ERROR)[0])

    def test_gives_the_same_bits_on_other_ranks(self):
        first = self.make_first()
        outcome = self.again(first, "second", ranks=3)
        self.assertEqual(outcome.status, 0, outcome)
        self.check_same(first, self.folder / "second")
        # And what was run again can be run again, elsewhere.
        moved = self.folder / "moved"
        (self.folder / "second").rename(moved)
        outcome = self.again(moved, "third", ranks=2)
        self.assertEqual(outcome.status, 0, outcome)
        self.check_same(first, self.folder / "third")
        with h5py.File(first / "job.h5") as file, h5py.File(moved / "job.h5") as other:
            self.assertEqual(list(file["requests"]), list(other["requests"]))
            facts = [read_attributes(job["provenance"]) for job in (file, other)]
            self.assertEqual(facts[0]["weights_hash"], facts[1]["weights_hash"])
            self.assertEqual(facts[0]["working_folder"], str(self.folder))
            self.assertEqual(facts[0]["model_path"], str(self.model))
            self.assertIn("sample.steps = 3", facts[0]["options_given"])
            self.assertEqual(list(facts[1]["options_given"]),
                             [f"output.path = {self.folder / 'second'}"])
            self.assertIn("--from", facts[1]["command"])

    def test_the_command_line_wins(self):
        first = self.make_first()
        outcome = self.again(first, "second", "--sample.seed", 5, "--output.latents", "no")
        self.assertEqual(outcome.status, 0, outcome)
        for index in range(len(LINES)):
            with h5py.File(clip_file(self.folder / "second", index)) as file:
                self.assertEqual(file.attrs["seed"], 5 + index)
                self.assertNotIn("latents", file)

    def test_another_checkpoint(self):
        first = self.make_first()
        path = max(self.model.glob("vae/*.safetensors"), key=lambda path: path.stat().st_size)
        _, data = read_header(path)
        flip_bit(path, path.stat().st_size - len(data) // 2)
        with h5py.File(first / "job.h5") as file:
            expected = file["provenance"].attrs["weights_hash"]
        for ranks in (1, 2):
            self.refused(self.again(first, "second", ranks=ranks), 65, expected,
                         str(first / "job.h5"), "--model.path")
        # The results of another job, which were to be replaced, stay.
        results = self.folder / "results"
        shutil.copytree(first, results)
        before = state_of(results)
        self.refused(self.again(first, "results", "--output.if-exists", "replace"), 65, expected)
        self.assertEqual(state_of(results), before)
        outcome = self.again(first, "second", "--model.path", self.model)
        self.assertEqual(outcome.status, 0, outcome)

    def test_files_that_are_no_job(self):
        first = self.make_first()
        index = first / "job.h5"
        whole = index.read_bytes()
        self.refused(execute([PROGRAM, "run", "--from", index, "--output.path", first]), 64,
                     "output.path", "another one")
        for content, text in ((whole[:len(whole) // 2], "cannot open"), (b"", "cannot open"),
                              (b"[sample]\nsteps = 3\n", "cannot open"),
                              (clip_file(first).read_bytes(), "another program"),
                              (whole.replace(b"Ein Caf", b"Ein Ca "), "damaged")):
            index.write_bytes(content)
            for ranks in (1, 2):
                self.refused(self.again(first, "second", ranks=ranks), 65, str(index), text)
        index.write_bytes(whole)
        with h5py.File(index, "r+") as file:
            file.attrs["format_version"] = 2
        self.refused(self.again(first, "second"), 65, "newer")
        index.unlink()
        self.refused(self.again(first, "second"), 66, str(index))
        self.assertFalse((self.folder / "second").exists())


if __name__ == "__main__":
    main()

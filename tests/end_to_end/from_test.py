"""run --from: a job is run again from its job.h5 alone; with --clips, clips that sample.stop-after
left with previews are completed. tests/pipeline/layouts does so in other layouts and families."""

import json
import shutil

import h5py
import numpy

from cache_test import OPEN_SORA_CASES, options_of_open_sora
from support import (DATA, ERROR, MPIRUN, PROGRAM, Reference, Scratch, arguments, clip_file, execute,
                     flip_bit, job_status, main, names_of_states, read_attributes, read_clip,
                     read_header, read_safetensors, relative, run, state_of)
from tables import table

# Clips of unlike sizes, lengths, steps, seeds and texts.
LINES = [
    {"prompt": "Ein Café", "seed": 2**64 - 1, "guidance": 6.1},
    {"prompt": "two\nlines", "negative_prompt": "dark", "frames": 8, "steps": 2},
    {"token_ids": [5, 9, 1], "height": 96, "width": 64, "fps": 7.5},
]
# Attributes that say how a clip was made on this occasion.
OF_THE_RUN = ("layout", "wall_seconds", "model")


class Refusing(Scratch):
    def refused(self, outcome, status, *texts):
        self.assertEqual(outcome.status, status, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        for text in texts:
            self.assertIn(text, outcome.lines(ERROR)[0])


class FromTest(Refusing):
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
            file.attrs["format_version"] = 3
        self.refused(self.again(first, "second"), 65, "newer")
        index.unlink()
        self.refused(self.again(first, "second"), 66, str(index))
        self.assertFalse((self.folder / "second").exists())


class LookFirst(Refusing):
    """Three clips of six steps, which are left after two; diffusers made the preview of the first."""

    PREVIEW = json.loads((DATA / "preview/reference.json").read_text())
    STEPS, LEFT = PREVIEW["steps"], PREVIEW["stop_after"]
    whole = None  # an undisturbed job

    def setUp(self):
        super().setUp()
        size = {f"sample__{name}": self.PREVIEW[name]
                for name in ("height", "width", "frames", "steps", "seed")}
        self.options = Reference(self.PREVIEW["kind"]).options(
            self.folder / "left", prompt__text=[self.PREVIEW["prompt"], "two", "three"],
            sample__scheduler="dpm", **size)
        self.index = self.folder / "left/job.h5"

    def leave(self, after=LEFT, **more):
        return self.make(self.options | {"sample.stop-after": after} | more)

    def complete(self, clips, ranks=1, **more):
        more = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
        return run({"from": self.index, "clips": clips} | more, ranks)

    def states(self, output):
        with h5py.File(output / "job.h5") as file:
            return names_of_states(table(file, "states")), list(file["clips"])

    def check_whole(self, output, numbers):
        if LookFirst.whole is None:
            whole = self.make(self.options | {"output.path": self.folder / "whole"})
            LookFirst.whole = [read_clip(whole, number) for number in range(3)]
        for number in numbers:
            clip, expected = read_clip(output, number), self.whole[number]
            for name in ("latents", "video", "token_ids"):
                self.assertEqual(clip[name].tobytes(), expected[name].tobytes(), (number, name))
            self.assertEqual(set(clip["attributes"]), set(expected["attributes"]))

    def test_chosen_clips_are_completed_in_the_same_folder(self):
        outcome = run(self.options | {"sample.stop-after": self.LEFT, "restart.every": "none"}, 2)
        left = self.folder / "left"
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn("3 of 3 clips have a preview", outcome.errors)
        self.assertEqual(self.states(left), (3 * ["preview"], ["000000", "000001", "000002"]))
        self.assertEqual(job_status(left), "complete")
        for number in range(3):
            clip = read_clip(left, number)
            self.assertEqual(clip["attributes"]["stopped_after"], self.LEFT)
            with h5py.File(left / f"restart/{number:06}.h5") as state:
                self.assertEqual(state.attrs["step"], self.LEFT)
                # What this sampler keeps is the clean latents that the last step predicted.
                self.assertEqual(clip["latents"].tobytes(), state["history0"][()].tobytes())
                self.assertNotEqual(clip["latents"].tobytes(), state["latents"][()].tobytes())
        expected = read_safetensors(DATA / "preview/reference.safetensors")
        preview = read_clip(left)
        self.assertLessEqual(relative(preview["latents"], expected["latents"]), 2e-4)
        levels = preview["video"].astype(int) - expected["video"]
        self.assertLessEqual(numpy.abs(levels).max(), 2)
        others = state_of(left / "clips")
        outcome = self.complete("2,0-0")
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn("and 1 more clips after saved steps", outcome.errors)
        self.check_whole(left, (0, 2))
        self.assertEqual(self.states(left)[0], ["complete", "preview", "complete"])
        self.assertEqual([path.name for path in (left / "restart").iterdir()], ["000001.h5"])
        self.assertFalse((left / "earlier").exists())
        kept = clip_file(left, 1)
        self.assertEqual(state_of(left / "clips")[kept], others[kept])
        with h5py.File(left / "job.h5") as file:
            self.assertIn("sample.stop-after = none\n", file.attrs["options"])
        # The rest, without a word about them.
        outcome = run(self.options | {"output.if-exists": "resume"})
        self.assertEqual(outcome.status, 0, outcome)
        self.check_whole(left, range(3))
        self.assertEqual(self.states(left)[0], 3 * ["complete"])
        self.assertFalse((left / "restart").exists())

    def test_chosen_clips_are_completed_in_another_folder(self):
        left = self.leave()
        before = state_of(left)
        # A little further first.
        outcome = self.complete("1", output__path=self.folder / "other", sample__stop_after=4)
        self.assertEqual(outcome.status, 0, outcome)
        clip = read_clip(self.folder / "other", 1)
        self.assertEqual(clip["attributes"]["stopped_after"], 4)
        self.assertEqual(self.states(self.folder / "other")[0], ["missing", "preview", "missing"])
        outcome = self.complete("0-1", 2, output__path=self.folder / "other",
                                output__if_exists="resume")
        self.assertEqual(outcome.status, 0, outcome)
        self.check_whole(self.folder / "other", (0, 1))
        self.assertEqual(self.states(self.folder / "other")[0],
                         ["complete", "complete", "missing"])
        self.assertFalse((self.folder / "other/restart").exists())
        self.assertEqual({path: state for path, state in state_of(left).items()
                          if path.name != ".lock"},
                         {path: state for path, state in before.items() if path.name != ".lock"})

    def test_looking_again(self):
        """The same command keeps previews; more steps make later ones; a state without its preview,
        as after a kill, goes one step further."""
        left = self.leave()
        before = state_of(left / "clips")
        self.make(self.options | {"sample.stop-after": self.LEFT, "output.if-exists": "resume"})
        self.assertEqual(state_of(left / "clips"), before)
        self.assertEqual(self.states(left)[0], 3 * ["preview"])
        clip_file(left, 1).unlink()
        for after, found in ((self.LEFT, [2, 3, 2]), (4, [4, 4, 4])):
            self.make(self.options | {"sample.stop-after": after, "output.if-exists": "resume"})
            self.assertEqual([read_clip(left, number)["attributes"]["stopped_after"]
                              for number in range(3)], found)
        self.make(self.options | {"output.if-exists": "resume"})
        self.check_whole(left, range(3))

    def test_the_preview_of_a_rectified_flow(self):
        """x0 = x + t (x' - x) / (t - t') by the latents before and after a step."""
        case = OPEN_SORA_CASES["v1_2"] | {"steps": 4}
        for name in ("cache", "cache_coefficients"):
            case.pop(name, None)
        options = options_of_open_sora(case, self.folder / "flow", output__video="no")
        latents, times = [], []
        for after in (1, 2):
            output = self.make(options | {"sample.stop-after": after, "output.if-exists": "resume"})
            with h5py.File(output / "restart/000000.h5") as state:
                latents.append(state["latents"][()].astype(float))
        with h5py.File(output / "job.h5") as file:
            plan = json.loads(file.attrs["plan_json"])
        frames, height, width = (plan["clip"][name] for name in ("frames", "height", "width"))
        ratio = (height * width / 512 ** 2) ** 0.5 * (frames // 17 * 5) ** 0.5
        for step in (1, 2):
            t = 1 - step / case["steps"]
            times.append(ratio * t / (1 + (ratio - 1) * t))
        expected = latents[0] + times[0] * (latents[1] - latents[0]) / (times[0] - times[1])
        self.assertLess(relative(read_clip(output)["latents"], expected), 1e-5)

    def test_refused(self):
        left = self.leave()
        other = {"output__path": self.folder / "other"}
        self.refused(self.complete("0,3"), 64, "--clips", "'0,3'", "0 to 2")
        self.refused(self.complete("one"), 64, "--clips", "'one'")
        self.refused(run(self.options | {"clips": "1"}), 64, "--clips", "--from")
        self.refused(self.complete("1", prompt__text="four"), 64, "--clips and prompts")
        self.refused(self.complete("1", output__if_exists="replace", **other), 64,
                     "output.if-exists", "replace")
        state = left / "restart/000001.h5"
        for ranks, change in ((2, {"sample__guidance": 3}), (1, {"numerics__dtype": "bfloat16"})):
            self.refused(self.complete("0-1", ranks, **other, **change), 65, "--clips",
                         str(left / "restart/000000.h5"), "clip 0")
        with h5py.File(state) as file:
            place = file["latents"].id.get_chunk_info(0).byte_offset
        flip_bit(state, place)
        self.refused(self.complete("0-1", **other), 65, str(state), "clip 1", "damaged")
        self.refused(self.complete("0-1"), 65, str(state), "clip 1", "damaged")
        state.unlink()
        self.refused(self.complete("0-1", 2, **other), 66, str(state), "clip 1 is missing")
        self.assertEqual(list((self.folder / "other").iterdir()), [])
        self.assertEqual(self.states(left)[0], 3 * ["preview"])

    def test_plan(self):
        outcome = self.plan(self.options | {"sample.stop-after": self.LEFT}, "--ranks", 2)
        self.assertIn("6 steps, left after 2 of them with a preview", outcome.output)
        machine = {"device.machine": Reference("rotary").model.parents[1] / "machine.cfg"}
        steps = {}
        for name, more in (("whole", {}), ("left", {"sample.stop-after": self.LEFT})):
            output = self.folder / name
            self.planned(self.options | machine | more, "--ranks", 1, command=("simulate", output))
            with h5py.File(output / "trace.h5") as file:
                steps[name] = numpy.count_nonzero(table(file, "spans")["name"] == b"denoise_step")
        self.assertEqual(steps, {"whole": 18, "left": 6})


if __name__ == "__main__":
    main()

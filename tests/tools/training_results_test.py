#!/usr/bin/python3
"""Tests of what the tools say of a training: reelmesh-report and reelmesh-compare show it, the
others say that it has no clips.

Ends with status 77 (skipped) if Debian's packages for it are not installed; the test of the schema
is skipped without jsonschema.
"""
import json
import re
import shutil
import struct
import sys
import time
import unittest

try:
    import h5py
    import matplotlib  # noqa: F401
    import numpy as np
    import PIL  # noqa: F401
except ImportError as missing:
    print(f"training_results_test: passed over: {missing}")
    sys.exit(77)

import results_support as support
from report_support import Report
from tool_support import TOOLS, ToolTest

from reelmesh_results.hdf5 import Damaged
from reelmesh_results.safetensors import Safetensors

LORA = "lora/pytorch_lora_weights.safetensors"
FIRST = "transformer.transformer_blocks.0.attn1.to_q.lora_A.weight"


class Numbers(Report):
    def training(self):
        return self.numbers()["training"]

    def steps(self, loss, **columns):
        support.write_training(self.out, 4, trace=False)
        support.write_metrics(self.out, loss, **columns)

    def test_what_is_computed_of_known_steps(self):
        loss = np.concatenate([np.full(10, 4.0), np.full(5, 1.0), np.full(5, 2.0)])
        self.steps(loss, gradient_norm=[2.0] * 5 + [0.5] * 15, seconds=np.arange(1.0, 21.0),
                   learning_rate=np.linspace(1e-4, 2e-4, 20))
        found = self.training()
        self.assertEqual([found[name] for name in (
            "method", "steps", "planned_steps", "batch", "clips_seen", "lost_steps",
            "not_finite_steps")], ["lora", 20, 500, 2, 40, 0, 0])
        curve = found["loss"].pop("curve")
        self.assertEqual(found["loss"], {"window": 2, "first": 4, "last": 2, "lowest": 1})
        self.assertEqual(curve, [4.0] * 9 + [2.5] + [1.0] * 4 + [1.5] + [2.0] * 4)
        self.assertEqual(found["gradient_norm"], {"median": 0.5, "max": 2, "limit": 1,
                                                  "limited": 0.25})
        self.assertEqual(found["learning_rate"], {"max": 2e-4, "last": 2e-4})
        took = found["step_seconds"]
        self.assertEqual((took["median"], took["min"], took["max"], took["total"]),
                         (10.5, 1, 20, 210))
        self.assertAlmostEqual(found["clips_per_hour"], 3600 * 40 / 210)
        self.assertEqual(found["seconds_left"], 480 * 10.5)
        self.assertEqual(found["epochs"], 40 / 3)
        self.assertEqual(found["samples"]["items"][2], {
            "sample": 2, "prompt": "a red square jumps, 2", "file": "clips/002.mkv"})
        self.assertEqual(found["lora"], {
            "rank": 8, "alpha": 4, "rank_pattern": "", "alpha_pattern": "",
            "targets": ["to_q", "to_k", "to_v", "to_out.0"], "file": LORA,
            "bytes": (self.out / LORA).stat().st_size})

    def test_the_mean_of_many_steps(self):
        """Against a plain sum; a window has at most 200 steps."""
        loss = np.random.default_rng(1).lognormal(size=3000)
        self.steps(loss)
        found = self.training()["loss"]
        means = [loss[i - 199:i + 1].mean() for i in range(199, 3000)]
        self.assertEqual((found["window"], len(found["curve"])), (200, 60))
        for value, expected in ((found["first"], means[0]), (found["last"], means[-1]),
                                (found["lowest"], min(means))):
            self.assertAlmostEqual(value, expected, places=9)

    def test_the_loss_by_timestep(self):
        """Known losses: a quarter of the timesteps and the step give them."""
        steps = np.arange(20)
        timestep = np.stack([np.where(steps < 10, 249, 500), np.full(20, 999)], 1)
        loss = np.stack([np.where(steps < 10, 4.0, 1.0 + steps), np.full(20, 0.5)], 1)
        loss[3, 0], loss[5, 1] = np.nan, np.inf
        self.steps(loss.mean(1), samples=(np.zeros((20, 2)), timestep, loss))
        found = self.training()["loss_by_quarter"]
        self.assertEqual(found["window"], 8)
        self.assertEqual(found["quarters"], [
            {"timesteps": [0, 249], "samples": 9, "first": 4, "last": None},
            {"timesteps": [250, 499], "samples": 0, "first": None, "last": None},
            {"timesteps": [500, 749], "samples": 10, "first": None, "last": 16.5},
            {"timesteps": [750, 999], "samples": 19, "first": 0.5, "last": 0.5}])
        self.assertIn("0 to 249: 4 → –; 250 to 499: – → –; 500 to 749: – → 16.5; 750 to 999: "
                      "0.5 → 0.5; means of up to 8 steps",
                      " ".join(self.expect(0, self.out, "--text").split()))
        # A row that is lost has no timestep.
        timestep[-1], loss[-1] = -1, np.nan
        self.steps(loss.mean(1), samples=(timestep, timestep, loss))
        self.assertEqual(self.training()["loss_by_quarter"]["quarters"][2]["last"], 16)
        self.steps(loss.mean(1))
        self.assertIsNone(self.training()["loss_by_quarter"])

    def test_validations(self):
        losses = [[8, 4, 2, 2], [4, 2, 1, 1], [6, 3, 2, 1]]
        self.steps(np.ones(20), validations=([0, 10, 20], [125, 375, 625, 875], losses))
        self.assertEqual(self.training()["validation"], {
            "steps": [0, 10, 20], "timesteps": [125, 375, 625, 875], "loss": [4, 2, 3],
            "loss_by_timestep": [[8, 4, 6], [4, 2, 3], [2, 1, 2], [2, 1, 1]],
            "lowest": 2, "lowest_step": 10})
        self.assertIn("4 after 0 steps, 3 after 20, lowest 2 after 10",
                      self.expect(0, self.out, "--text"))
        page = self.page()
        self.assertIn('aria-label="validation loss, 3 validations"', page)
        self.assertIn("mean: 4 → 3", page)
        self.assertIn("timestep 875: 2 → 1", page)
        self.steps(np.ones(20))
        self.assertIsNone(self.training()["validation"])
        self.assertNotIn("validation", self.page())

    def test_results_that_are_kept(self):
        self.steps(np.ones(20), validations=([0, 10, 20], [125, 375, 625, 875],
                                             [[8, 4, 2, 2], [4, 2, 1, 1], [6, 3, 2, 1]]))
        name = "pytorch_lora_weights.safetensors"
        for step in (10, 15):
            path = self.out / "kept" / f"step-{step:06}" / "lora" / name
            path.parent.mkdir(parents=True)
            path.write_bytes(b"x" * step)
        (self.out / "kept" / "step-000020").mkdir()
        found = self.training()["kept"]
        self.assertEqual([(one["step"], one["validation_loss"], one["bytes"]) for one in found],
                         [(10, 2, 10), (15, None, 15)])
        page = self.page()
        for one in found:
            self.assertEqual(one["file"], f"kept/step-{one['step']:06}/lora/{name}")
            self.assertIn(f'<a href="{one["file"]}">{one["file"]}</a>', page)
        self.assertIn('<a href="metrics.h5">', page)
        self.assertIn("after 10, 15 steps", self.expect(0, self.out, "--text"))

    def make_clips(self, steps, clips=2):
        """Clips as train.sample-every makes them, another one after each step."""
        for step in steps:
            folder = self.out / "samples" / f"step-{step:06}"
            prompts = [f"prompt {i} <b>" for i in range(clips)]
            for i, prompt in enumerate(prompts):
                support.write_clip(folder, i, support.moving_square(5, 16, 16, step + i), prompt,
                                   seed=42 + i)
            support.write_index(folder, [{"prompt": one, "seed": 42 + i}
                                         for i, one in enumerate(prompts)], trace=False)

    def test_clips_made_in_the_training(self):
        self.steps(np.ones(20))
        self.assertIsNone(self.training()["made"])
        self.assertNotIn('id="made"', self.page())
        self.make_clips((0, 10, 20))
        (self.out / "samples" / "mine").mkdir()
        found = self.training()["made"]
        self.assertEqual(found["steps"], [0, 10, 20])
        self.assertEqual([(one["step"], one["clip"], one["number"]) for one in found["items"]],
                         [(step, clip, 2 * i + clip) for i, step in enumerate((0, 10, 20))
                          for clip in (0, 1)])
        last = found["items"][-1]
        self.assertEqual((last["state"], last["prompt"], last["seed"], last["file"]), (
            "complete", "prompt 1 <b>", 43, "samples/step-000020/clips/000001.h5"))
        self.assertIn("3 times, after 0 to 20 steps", self.expect(0, self.out, "--text"))
        page = self.page()
        rows = re.findall('<article class="made">.*?</article>', page, re.S)
        self.assertEqual(len(rows), 2)
        for i, row in enumerate(rows):
            self.assertIn(f'<p class="prompt">prompt {i} &lt;b&gt;</p>', row)
            self.assertIn(f"seed {42 + i}", row)
            self.assertEqual(
                re.findall("<figcaption>(.*?)</figcaption>", row),
                [f'{when} · <a href="samples/step-{step:06}/clips/{i:06}.h5">HDF5</a>'
                 for step, when in ((0, "before the training"), (10, "after 10 steps"),
                                    (20, "after 20 steps"))])
            self.assertEqual(len(set(re.findall(r'(?:poster|img[^>]* src)="([^"]+)"', row))), 3)
        # Of many steps the first, the last and six between; a damaged clip is named.
        self.make_clips(range(1, 100), 1)
        (self.out / "samples/step-000010/clips/000000.h5").write_bytes(b"x")
        (self.out / "samples/step-000099/clips/000000.h5").write_bytes(b"x")
        done = self.call(self.out)
        self.assertEqual(done.returncode, 65)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("step-000099/clips/000000.h5: ", done.stderr)
        page = (self.out / "report.html").read_text()
        self.assertEqual(page.count("<figcaption>before the training"), 2)
        self.assertIn("Those of 92 more steps are in the folder samples", page)
        self.assertIn("not a readable HDF5 file", page)

    def test_lost_rows_and_values_that_are_not_finite(self):
        nan = np.nan
        loss = np.array([nan, nan, 1.0, 3.0, np.inf, nan] + [2.0] * 14)
        seconds = np.where(np.arange(20) < 2, nan, 2.0)
        self.steps(loss, seconds=seconds)
        found = self.training()
        self.assertEqual((found["lost_steps"], found["not_finite_steps"]), (2, 2))
        self.assertEqual((found["loss"]["first"], found["loss"]["lowest"]), (None, 1))
        self.assertEqual(found["loss"]["curve"][1:5], [1, 2, 3, None])
        self.assertEqual(found["step_seconds"]["total"], 36)
        self.assertEqual(found["clips_per_hour"], 3600)  # of the steps whose time is known
        text = self.expect(0, self.out, "--text")
        self.assertIn("2 steps without values: the job was killed", text)
        self.assertIn("the loss of 2 steps is not finite", text)

    def test_a_lora_of_several_ranks(self):
        support.write_training(self.out, 4, options={"lora.rank-pattern": "to_q=2,ff.net.2=16",
                                                     "lora.alpha-pattern": "to_q=1"})
        found = self.training()["lora"]
        self.assertEqual((found["rank_pattern"], found["alpha_pattern"]),
                         ("to_q=2,ff.net.2=16", "to_q=1"))
        self.assertIn("rank 8 (to_q=2,ff.net.2=16), alpha 4 (to_q=1), of to_q, to_k",
                      self.page())

    def test_a_training_that_runs(self):
        support.write_training(self.out, 4, status="unfinished")
        status = {"updated": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "steps": 500,
                  "complete": 7, "state": "training", "loss": 0.25, "step_seconds": 3.2,
                  "saved_step": 4, "ranks": [{"rank": 0, "host": "node-a", "stage": "train_step"}]}
        (self.out / "status.json").write_text(json.dumps(status))
        found = self.numbers()["job"]
        self.assertEqual((found["status"], found["now"]["complete"]), ("running", 7))
        page = self.page()
        self.assertIn("training: 7 of 500 steps are done, saved after 4, loss 0.25", page)
        self.assertIn("train_step", page)
        status |= {"state": "<b>starting", "complete": 0, "loss": None, "saved_step": None}
        (self.out / "status.json").write_text(json.dumps(status))
        self.assertIn("&lt;b&gt;starting: 0 of 500 steps are done</p>", self.page())

    def test_options_that_are_not_given(self):
        support.write_training(self.out, 4, options={"lora.alpha": "", "train.clip": "none"})
        found = self.training()
        self.assertEqual(found["lora"]["alpha"], 8)  # the rank
        self.assertIsNone(found["gradient_norm"]["limit"])
        self.assertIsNone(found["gradient_norm"]["limited"])

    def test_a_training_that_has_just_begun(self):
        support.write_training(self.out, 3, status="unfinished", trace=False)
        for name in ("cache", "lora"):
            shutil.rmtree(self.out / name)
        (self.out / "metrics.h5").unlink()
        found = self.training()
        self.assertEqual((found["steps"], found["samples"], found["lora"]["file"]),
                         (0, {"count": 0, "items": []}, None))
        self.assertIsNone(found["loss"]["last"])
        self.assertIn("No step has been written to metrics.h5", self.page())
        self.assertIn("no LoRA has been written yet", self.expect(0, self.out, "--text"))

    def test_jobs_that_make_clips_have_no_training(self):
        self.job()
        self.assertIsNone(self.numbers()["training"])
        self.assertNotIn('id="training"', self.page())

    def test_the_schema_describes_every_number(self):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("jsonschema is not installed")
        schema = json.loads((TOOLS / "reelmesh_results/report/schema.json").read_text())
        support.write_training(self.out, 30)
        self.make_clips((0, 30))
        jsonschema.validate(self.numbers(), schema)
        (self.out / "metrics.h5").unlink()
        shutil.rmtree(self.out / "cache")
        shutil.rmtree(self.out / "lora")
        jsonschema.validate(self.numbers(), schema)


class Pages(Report):
    def test_the_page_of_a_training(self):
        support.write_training(self.out, 500, samples=3)
        page = self.page()
        self.assertIn('<a class="skip" href="#training">Skip to the training</a>', page)
        self.assertIn("<dd>500<small> of 500</small></dd><dt>steps</dt>", page)
        self.assertIn("loss, mean of the last 50 steps", page)
        for label in ("loss by step, 500 steps", "gradient norm by step, 500 steps",
                      "learning rate by step, 500 steps", "seconds by step, 500 steps",
                      "loss by timestep, 500 steps", "validation loss, 11 validations"):
            self.assertIn(f'aria-label="{label}"', page)
        for words in ("mean of 50 steps", "rank 8, alpha 4, of to_q, to_k, to_v, to_out.0",
                      "a red square jumps, 2", 'id="timeline"', 'id="memory"'):
            self.assertIn(words, page)
        for words in ('id="clips"', 'id="steps"', "clips complete", "no plan to compare"):
            self.assertNotIn(words, page)
        ids = re.findall(r'\sid="([^"]+)"', page)
        self.assertEqual(len(ids), len(set(ids)))

    def points(self, page, chart):
        """(x, y) of the longest line of a chart."""
        svg = re.search(rf'<svg class="chart"[^>]*aria-label="{chart} by step.*?</svg>', page,
                        re.S)[0]
        lines = [re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", path)
                 for path in re.findall(r' d="([^"]*)"', svg)]
        return np.array(max(lines, key=len), float)

    def test_the_curve_has_the_values(self):
        support.write_training(self.out, 9, trace=False)
        loss = np.array([0.9, 0.7, 0.8, 0.5, 0.6, 0.4, 0.3, 0.35, 0.2])
        support.write_metrics(self.out, loss)
        x, y = self.points(self.page(), "loss").T
        self.assertEqual(len(x), 9)
        np.testing.assert_allclose(np.diff(x), np.diff(x)[0], rtol=1e-4)
        # Pictures have y from the top.
        np.testing.assert_allclose((y[0] - y) / (y[0] - y[-1]), (loss[0] - loss) / 0.7, atol=1e-4)

    def test_many_steps_make_a_small_page(self):
        support.write_training(self.out, 100_000, trace=False)
        page = self.page()
        self.assertLess(len(page), 1_500_000)
        self.assertIn("loss by step, 100\u202f000 steps", page)

    def test_one_step(self):
        support.write_training(self.out, 1, trace=False)
        self.assertIn('aria-label="loss by step, 1 step"', self.page())

    def test_nothing_finite(self):
        support.write_training(self.out, 3, trace=False)
        support.write_metrics(self.out, np.full(3, np.nan))
        self.assertIn("No loss is finite", self.page())

    def test_prompts_do_not_become_markup(self):
        support.write_training(self.out, 3, trace=False)
        support.write_sample(self.out, 1, "<script>alert(1)</script>", '"><img src=x>')
        page = self.page()
        self.assertNotIn("<script>alert", page)
        self.assertNotIn("<img src=x", page)
        self.assertIn("&lt;script&gt;alert", page)

    def test_damaged_files_are_named_and_the_rest_is_shown(self):
        support.write_training(self.out, 20, trace=False)
        (self.out / "metrics.h5").write_bytes(b"not HDF5")
        with h5py.File(self.out / "job.h5", "a") as file:
            del file["samples/000001"].attrs["prompt"]
        done = self.call(self.out)
        self.assertEqual(done.returncode, 65)
        self.assertEqual(done.stderr.count("\n"), 2, done.stderr)
        for part in ("metrics.h5: not a readable HDF5 file", "job.h5: /samples/000001: no "):
            self.assertIn(part, done.stderr)
        self.assertIn("a red square jumps, 2", (self.out / "report.html").read_text())

    def test_metrics_of_another_form(self):
        for change, part in ((lambda file: file.move("loss", "lost"), "/loss is not there"),
                             (lambda file: self.replace(file, np.arange(20)), "loss is int64"),
                             (lambda file: self.replace(file, np.zeros(19)), "as many in each"),
                             (lambda file: file.move("validation_step", "x"), "/validation_step "),
                             (lambda file: file.move("timestep", "x"), None),
                             (lambda file: self.replace(file, np.zeros(20), "sample"),
                              "sample is float64 [20], expected int32 [step, place]"),
                             (self.without_timesteps, "timestep has timesteps = None")):
            support.write_training(self.out, 20, trace=False)
            with h5py.File(self.out / "metrics.h5", "a") as file:
                change(file)
            if part is None:  # as in a file of an earlier version
                self.expect(0, self.out, "--text")
            else:
                self.refused(65, part, self.out, "--text")

    @staticmethod
    def without_timesteps(file):
        del file["timestep"].attrs["timesteps"]

    @staticmethod
    def replace(file, values, name="loss"):
        del file[name]
        file[name] = values


class OtherTools(ToolTest):
    def test_tools_for_clips_say_that_there_are_none(self):
        out = self.folder / "out"
        support.write_training(out, 3)
        for tool, *words in (("view", out), ("view", out, "--watch"), ("view", out / "job.h5"),
                             ("export", out, "--all", "--to", self.folder / "to")):
            words += ["--no-mp4"] if tool == "view" else ["--format", "npy"]
            self.refused(66, "is of a training, which makes no clips; reelmesh-report shows it, "
                         f"and reelmesh run --model.lora {out}/lora", *words,
                         tool=f"reelmesh-{tool}")

    def test_its_trace_is_converted(self):
        out = self.folder / "out"
        support.write_training(out, 3)
        self.assertIn("spans", self.expect(0, out, tool="reelmesh-trace"))
        (out / "trace.h5").unlink()
        self.refused(66, "has no trace.h5", out, tool="reelmesh-trace")


class Compare(ToolTest):
    tool = "reelmesh-compare"

    def setUp(self):
        super().setUp()
        self.a, self.b = self.folder / "a", self.folder / "b"
        for out in (self.a, self.b):
            support.write_training(out, 40, trace=False)

    def compared(self, status):
        return json.loads(self.expect(status, self.a, self.b, "--json"))

    def change(self, name, step, value):
        with h5py.File(self.b / "metrics.h5", "a") as file:
            file[name][step] = value

    def test_the_same_bits(self):
        self.change("seconds", slice(None), 7.0)  # are not compared
        text = self.expect(0, self.a, self.b / "job.h5")
        self.assertIn("40 steps: the same bits", text)
        self.assertIn("8 tensors of the LoRA: the same bits", text)
        found = self.compared(0)
        self.assertEqual((found["result"], found["first"], found["notes"]), ("same", None, []))

    def test_one_bit_of_each_column(self):
        for name in ("loss", "gradient_norm", "learning_rate"):
            with self.subTest(name):
                support.write_training(self.b, 40, trace=False)
                with h5py.File(self.a / "metrics.h5") as file:
                    value = file[name][17]
                self.change(name, 17, np.nextafter(value, 1))
                found = self.compared(1)
                self.assertEqual((found["first"]["array"], found["first"]["at"]), (name, [17]))
                self.assertEqual(found["metrics"][name]["differing"], 1)
                self.assertEqual(found["different_tensors"], {})

    def test_the_first_difference_is_that_of_the_computation(self):
        self.change("loss", 9, 1.5)
        self.change("gradient_norm", 8, 0.25)
        self.change("learning_rate", 8, 2.0)
        self.assertIn("first difference: step 8, gradient_norm: ",
                      self.expect(1, self.a, self.b))

    def test_one_bit_of_the_lora(self):
        tensors = support.write_lora(self.b)
        tensors[FIRST][2, 3] = np.nextafter(tensors[FIRST][2, 3], np.float32(9))
        support.write_safetensors(self.b / LORA, tensors)
        found = self.compared(1)
        self.assertEqual((found["first"]["array"], found["first"]["at"]), (FIRST, [2, 3]))
        self.assertEqual(list(found["different_tensors"]), [FIRST])
        self.assertIn("40 steps: the same bits", self.expect(1, self.a, self.b))

    def test_large_tensors_are_read_in_blocks(self):
        values = np.zeros((3, 1 << 20), np.float32)
        support.write_safetensors(self.a / LORA, {"x": values})
        values[2, 5] = -0.0
        support.write_safetensors(self.b / LORA, {"x": values})
        self.assertEqual(self.compared(1)["first"], {"array": "x", "at": [2, 5], "a": 0, "b": 0})

    def test_what_cannot_be_compared(self):
        support.write_training(self.b, 30, trace=False, seed=1)
        found = self.compared(2)
        self.assertEqual((found["steps"], found["tensors"], found["first"]["array"]),
                         (30, 0, "loss"))
        self.assertEqual(found["not_comparable"], [
            "A has 40 steps and B 30, so that their LoRAs are of different steps"])
        support.write_training(self.b, 40, trace=False)
        support.write_lora(self.b, blocks=1)
        found = self.compared(2)
        self.assertEqual((found["steps"], found["tensors"], found["first"]), (40, 4, None))
        self.assertTrue(found["not_comparable"][0].startswith("only A's LoRA has "), found)
        support.write_lora(self.b, rank=2)
        self.assertIn(f"{FIRST} is float32 [4, 16] in A and float32 [2, 16] in B",
                      self.compared(2)["not_comparable"])
        (self.b / "metrics.h5").unlink()
        shutil.rmtree(self.b / "lora")
        self.assertEqual(self.compared(2)["not_comparable"], [
            "B has no metrics.h5",
            "B has no LoRA: no pytorch_lora_weights.safetensors in lora/"])

    def test_lost_rows_are_left_out(self):
        for name in ("loss", "gradient_norm", "learning_rate", "seconds"):
            self.change(name, slice(0, 5), np.nan)
        found = self.compared(0)
        self.assertEqual(found["steps"], 35)
        self.assertEqual(found["notes"], ["B has lost 5 steps, as the job was killed; they are not "
                                          "compared"])
        self.change("loss", 6, 9.0)
        self.assertEqual(self.compared(1)["first"]["at"], [6])

    def test_options_that_change_bits_are_noted(self):
        support.write_training(self.b, 40, trace=False, status="stopped", options={
            "train.seed": "7", "data.path": "elsewhere", "data.strict": "yes"})
        self.assertEqual(self.compared(0)["notes"], [
            "train.seed differs: 42 in A, 7 in B",
            "B is stopped: what it trained may be of an earlier step than its metrics"])

    def test_wrong_arguments(self):
        job = self.folder / "job"
        support.write_job(job, 1)
        self.refused(64, f"{self.a} is of a training and {job} is not", self.a, job)
        self.refused(64, "argument --clip", self.a, self.b, "--clip", "0")
        self.refused(64, "argument --picture", self.a, self.b, "--picture", self.folder / "p.png")

    def test_damaged_files(self):
        whole = (self.b / LORA).read_bytes()
        length = struct.unpack("<Q", whole[:8])[0]
        header = json.loads(whole[8:8 + length])

        def changed(**values):
            text = json.dumps(header | {FIRST: header[FIRST] | values}).encode()
            return struct.pack("<Q", len(text)) + text + whole[8 + length:]

        for content, part in (
                (whole[:4], "has 4 bytes"), (whole[:-4], "bytes, expected"),
                (struct.pack("<Q", 2**40) + whole[8:], "its header has 1099511627776 bytes"),
                (whole[:8] + b"[" + whole[9:], "its header is not that of a .safetensors file"),
                (changed(dtype="I8"), "found dtype I8"), (changed(shape=[4, 17]), "do not hold"),
                (changed(shape=[-4, -16]), "whole numbers from 0 on"),
                (changed(data_offsets=[4, 260]), "begins at byte")):
            with self.subTest(part):
                (self.b / LORA).write_bytes(content)
                self.refused(65, part, self.a, self.b)
                with self.assertRaisesRegex(Damaged, re.escape(part)), Safetensors(self.b / LORA):
                    pass
        (self.b / LORA).write_bytes(whole)
        (self.b / "metrics.h5").write_bytes(b"not HDF5")
        self.refused(65, f"{self.b}/metrics.h5: not a readable HDF5 file", self.a, self.b)


if __name__ == "__main__":
    unittest.main(verbosity=2)

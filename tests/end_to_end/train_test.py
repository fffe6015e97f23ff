"""reelmesh train as users run it: trainings that are stopped or killed go on with the same bits on
other ranks, bad inputs and settings are refused without loss, and the LoRA is used. Gradients and
steps are compared with PyTorch by tests/models and tests/train."""

import concurrent.futures
import csv
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import numpy

from interrupted import Interrupted
from support import (BACKEND, DATA, ERROR, WARNING, PROGRAM, check_all_time_is_in_spans, execute,
                     flip_bit, job_status, main, only_long, read_clip, read_header,
                     read_safetensors, relative, result_files, run, state_of, trace_complete,
                     write_header)

SOURCE = DATA.parents[2]
MODEL = SOURCE / "inputs" / "demo_model"
OPEN_SORA = DATA.parent / "opensora"
WAN = DATA.parent / "wan" / "float32"
# The parts of a model of Wan that takes an image.
WAN_IMAGE = {"model.path": WAN.parent / "image"} | {
    f"model.{part.replace('_', '-')}": WAN / part
    for part in ("vae", "text_encoder", "tokenizer", "scheduler")}
# A transformer, and the other parts of the demo's model.
IMAGE_MODEL = {"model__path": SOURCE / "inputs" / "demo_image_model"} | {
    f"model__{part}": MODEL / part for part in ("vae", "text_encoder", "tokenizer", "scheduler")}
CLIPS = 7  # an epoch is 3.5 steps
STEPS = 8 if BACKEND else 16  # emulated GPUs are slow
STOPPED, WATCHDOG = 75, 76


def values_of_rows(output):
    """Rows of metrics.h5 that do not depend on ranks and interruptions: all but times."""
    with h5py.File(output / "metrics.h5") as file:
        return {name: file[name][()] for name in file if name != "seconds"}


def values_of(output):
    """What must not depend on ranks and interruptions: rows of metrics.h5, and the LoRA."""
    return values_of_rows(output), lora_file(output).read_bytes()


def keys_of(path):
    with h5py.File(path) as file:
        return set(file)


def lora_file(output):
    return output / "lora" / "pytorch_lora_weights.safetensors"


@functools.cache
def shared_folder():
    """For what the tests of this file share."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reelmesh_train_"))
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def jumping_clips():
    """A folder of clips of one shape that jumps, with captions."""
    clips = shared_folder() / "clips"
    made = execute([sys.executable, SOURCE / "tools" / "make_training_clips", clips,
                    "--count", CLIPS, "--prompts", 1])
    if made.status == 69:
        raise unittest.SkipTest(made.errors.strip())
    assert made.status == 0, made
    return clips


@functools.cache
def pattern_clips():
    """A folder of clips of patterns that move, with captions."""
    clips = shared_folder() / "patterns"
    clips.mkdir()
    for number in range(3):
        subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i",
                        "testsrc2=size=96x112:rate=24:duration=2.5", "-vf",
                        f"hue=h={60 * number}", "-codec:v", "mjpeg", clips / f"{number}.mkv"], check=True)
        (clips / f"{number}.txt").write_text(f"Test pattern {number}, which moves.")
    return clips


class Training(Interrupted):
    """A test of a training of the demo's model with a few clips of one shape that jumps."""

    COMMAND = "train"
    own_cache = False  # otherwise all tests share the samples that the first one encodes

    @classmethod
    def setUpClass(cls):
        cls.clips = jumping_clips()
        with open(cls.clips / "metadata.csv") as file:
            cls.captions = [row["prompt"] for row in csv.DictReader(file)]

    def options(self, **more):
        cache = {} if self.own_cache else {"data.cache": shared_folder() / "cache"}
        return {"model.path": MODEL, "data.path": self.clips, "output.path": self.output,
                "train.steps": STEPS, "train.batch": 2, "train.caption-dropout": 0.2,
                "train.warmup": 3, "train.learning-rate": 0.01, "lora.rank": 4} | cache | {
                    key.replace("__", ".").replace("_", "-"): value
                    for key, value in more.items()}

    def train(self, ranks=1, **more):
        return run(self.options(**more), ranks, name="train")

    def check_trained(self, ranks=1, **more):
        """A training that must succeed without a warning."""
        outcome = self.train(ranks, **more)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.lines(ERROR) + outcome.lines(WARNING), [], outcome)
        return outcome

    def check_refused(self, status, *texts, ranks=1, **more):
        """A training that must end with one message that has these texts."""
        outcome = self.train(ranks, **more)
        self.assertEqual(outcome.status, status, outcome)
        errors = outcome.lines(ERROR)
        self.assertEqual(len(errors), 1, outcome)
        for text in texts:
            self.assertIn(str(text), errors[0])
        return outcome

    def check_same(self, output, expected):
        rows, lora = values_of(output)
        for name, values in expected[0].items():
            self.assertEqual(rows[name].tobytes(), values.tobytes(), f"{name}: {rows[name]}")
        self.assertEqual(lora, expected[1])

    def rows_and_weights(self, output):
        file = output / "transformer" / "diffusion_pytorch_model.safetensors"
        return values_of_rows(output), file.read_bytes()

    def check_same_weights(self, output, expected):
        rows, weights = self.rows_and_weights(output)
        for name, values in expected[0].items():
            self.assertEqual(rows[name].tobytes(), values.tobytes(), f"{name}: {rows[name]}")
        self.assertEqual(weights, expected[1])

    def saved_step(self):
        """Completed steps in the restart file; 0 without one."""
        try:
            with h5py.File(self.output / "restart" / "training.h5") as file:
                return int(file.attrs["step"])
        except OSError:  # none yet, or being replaced
            return 0

    def encoded(self, cache=None):
        """Files of encoded videos, without those that a job still writes: those have the names
        of the job, too, and are removed by the next one when it was killed before the rename."""
        found = sorted((cache or self.output / "cache").glob("[!.]*.h5"))
        return [path for path in found if "." not in path.stem and "latent_mean" in keys_of(path)]

    def sample(self, number, name="latent_mean", group="samples"):
        """An array of a sample, by way of job.h5."""
        with h5py.File(self.output / "job.h5") as file:
            return file[f"{group}/{number:06}/{name}"][()]


class InterruptionTest(Training):
    expected = None  # values of an undisturbed training on one rank

    def options(self, **more):
        return super().options(**{"lora__dropout": 0.1} | more)

    def setUp(self):
        super().setUp()
        if InterruptionTest.expected is None:
            self.check_trained(output__path=self.folder / "expected")
            InterruptionTest.expected = values_of(self.folder / "expected")
            self.assertEqual(job_status(self.folder / "expected"), "complete")
            self.assertTrue(trace_complete(self.folder / "expected"))
            check_all_time_is_in_spans(self, self.folder / "expected")
            self.assertTrue(numpy.isfinite(self.expected[0]["loss"]).all())

    def check_stopped(self, outcome, cause, state):
        self.assertEqual(outcome.status, STOPPED, outcome)
        self.assertEqual(outcome.lines(ERROR) + outcome.lines(WARNING), [], outcome)
        said = outcome.lines("stopped on request")
        self.assertEqual(len(said), 1, outcome)
        self.assertIn(f"({cause}): {state}", said[0])
        self.assertEqual(list(self.output.glob("**/.*")), [])
        self.assertEqual(job_status(self.output), "stopped")
        self.assertTrue(trace_complete(self.output))

    def check_goes_on(self, ranks, **more):
        before = self.saved_step()
        outcome = self.check_trained(ranks, output__if_exists="resume", **more)
        if before:
            self.assertIn(f"{before} steps were done before, {STEPS} are asked for", outcome.errors)
        self.check_same(self.output, self.expected)
        self.assertEqual(job_status(self.output), "complete")
        self.assertEqual(list(self.output.glob("**/.*")), [])

    def kept(self):
        """Step → bytes of the LoRA in OUT/kept."""
        return {int(path.parent.parent.name.removeprefix("step-")): path.read_bytes()
                for path in self.output.glob("kept/*/lora/pytorch_lora_weights.safetensors")}

    def test_results_that_are_kept(self):
        options = {"train__steps": 8, "train__save_every": 3}
        self.check_trained(2, train__keep="all", **options)
        everything = self.kept()
        self.assertEqual(sorted(everything), [3, 6, 8])
        self.assertEqual(len(set(everything.values())), 3)
        self.assertEqual(everything[8], values_of(self.output)[1])
        # After a stop the same are kept, and earlier ones removed.
        replace = {"output__if_exists": "replace"}
        self.check_trained(train__keep="2", **options | replace | {"train__steps": 3})
        self.assertEqual(list(self.kept()), [3])
        self.check_trained(3, train__keep="2", **options, output__if_exists="resume")
        self.assertEqual(self.kept(), {step: everything[step] for step in (6, 8)})
        # Killed before the last one was kept.
        shutil.rmtree(self.output / "kept" / "step-000008")
        self.check_trained(train__keep="2", **options, output__if_exists="resume")
        self.assertEqual(self.kept(), {step: everything[step] for step in (6, 8)})
        made = execute([PROGRAM, "run", "--model.path", MODEL, "--output.path",
                        self.folder / "clip", "--prompt.text", "a circle", "--sample.steps", 1,
                        "--model.lora", self.output / "kept" / "step-000006" / "lora"])
        self.assertEqual(made.status, 0, made)
        # The one with the least loss.
        self.check_trained(train__keep="best", train__validate_every=2, **options | replace)
        with h5py.File(self.output / "metrics.h5") as file:
            losses = file["validation_loss"][1:].mean(axis=1)  # but before the first step
            best = int(file["validation_step"][1:][losses.argmin()])
        self.assertEqual(list(self.kept()), [best])
        self.check_trained(**options | replace)
        self.assertFalse((self.output / "kept").exists())
        for keep, expected in (("all", "train.save-every"), ("best", "train.validate-every"),
                               ("some", "expected ")):
            self.check_refused(64, "train.keep: ", expected, train__keep=keep, **replace)

    def test_recipes_and_another_rate(self):
        """Losses weighted by min-SNR; going on at another rate where that is said."""
        gamma, options = 2.0, {"train__batch": 3, "train__warmup": 0}
        self.check_trained(train__steps=1, **options)
        plain = values_of(self.output)[0]
        recipe = options | {"train__steps": 4, "train__min_snr": gamma, "train__schedule": "cosine",
                            "train__min_rate": 1e-4, "output__if_exists": "replace"}
        self.check_trained(2, **recipe)
        rows = values_of(self.output)[0]
        with open(MODEL / "scheduler" / "scheduler_config.json") as file:
            config = json.load(file)
        # As CogVideoXDPMScheduler of diffusers computes it.
        roots = numpy.linspace(config["beta_start"] ** 0.5, config["beta_end"] ** 0.5, 1000)
        alphas = numpy.cumprod(1 - roots ** 2)
        shift = config["snr_shift_scale"]
        alphas = numpy.sqrt(alphas / (shift + (1 - shift) * alphas))
        alphas = ((alphas - alphas[-1]) * alphas[0] / (alphas[0] - alphas[-1])) ** 2
        alphas = alphas[rows["timestep"][0]]
        numpy.testing.assert_array_equal(rows["timestep"][0], plain["timestep"][0])
        numpy.testing.assert_allclose(
            rows["sample_loss"][0],
            plain["sample_loss"][0] * numpy.minimum(alphas, gamma * (1 - alphas)), rtol=1e-5)
        other = recipe | {"train__steps": 6, "train__learning_rate": 0.003, "train__power": 2,
                          "train__schedule": "polynomial", "output__if_exists": "resume"}
        self.check_refused(65, "is of another training", "train.learning-rate 0.003",
                           "train.new-rate = yes", **other)
        outcome = self.check_trained(train__new_rate="yes", **other)
        said = ("from step 5: train.steps 6, train.learning-rate 0.003, train.schedule polynomial, "
                "train.warmup 0, train.min-rate 0.0001, train.power 2; before: train.steps 4, "
                "train.learning-rate 0.01, train.schedule cosine, train.warmup 0, "
                "train.min-rate 0.0001")
        self.assertIn(said, outcome.errors)
        later = values_of(self.output)[0]
        self.assertEqual(later["loss"][:4].tobytes(), rows["loss"].tobytes())
        numpy.testing.assert_allclose(
            later["learning_rate"][4:],
            [1e-4 + (0.003 - 1e-4) * (1 - step / 6) ** 2 for step in (4, 5)], rtol=1e-12)
        self.check_trained(2, **other | {"train__steps": 6})  # it is its rate now
        with h5py.File(self.output / "job.h5") as file:
            self.assertEqual(file.attrs["new_rates"], said)

    def test_stops_on_a_signal_and_goes_on_with_other_ranks(self):
        forwarded = lambda job, ranks: job.send_signal(signal.SIGUSR1)  # mpirun passes it on
        to_one_rank = lambda job, ranks: os.kill(ranks[-1], signal.SIGINT)
        # 5 steps are one epoch and 3 clips of the next one; 2 replicas, and one.
        for ranks, layout, disturbance, cause, later_ranks, later_layout in (
                (2, {}, forwarded, "SIGUSR1", 3, {"parallel__replicas": 1}),
                (3, {"parallel__replicas": 1}, to_one_rank, "SIGINT", 1, {})):
            with self.subTest(ranks=ranks):
                shutil.rmtree(self.output, ignore_errors=True)
                outcome = self.disturb(ranks, disturbance, self.options(restart__every=1, **layout),
                                       lambda: self.saved_step() >= 5)
                step = self.saved_step()
                self.assertLess(step, STEPS)
                self.check_stopped(outcome, cause, f"{step} of {STEPS} steps are done and saved")
                self.check_goes_on(later_ranks, **later_layout)

    def test_stops_at_a_time_limit(self):
        began = time.monotonic()
        self.check_trained(train__steps=1)
        shutil.rmtree(self.output)
        # Enough for some steps on a loaded machine; at a constant rate steps may be added later.
        seconds = 3 * (time.monotonic() - began) + 1
        outcome = self.train(2, max_time=f"{seconds}s", train__steps=100000, restart__every="none")
        step = self.saved_step()
        self.assertGreater(step, 0, outcome)
        self.check_stopped(outcome, "the time limit (--max-time)",
                           f"{step} of 100000 steps are done and saved")
        if step <= STEPS:
            self.check_goes_on(1)
        rows, _ = values_of(self.output)
        for name, values in self.expected[0].items():
            self.assertEqual(rows[name][:STEPS].tobytes(), values.tobytes(), name)

    def test_goes_on_after_a_kill(self):
        outcome = self.disturb(2, lambda job, ranks: os.kill(ranks[1], signal.SIGKILL),
                               self.options(train__save_every=STEPS // 8),
                               lambda: self.saved_step() >= STEPS // 4)
        self.assertNotIn(outcome.status, (0, STOPPED), outcome)
        step = self.saved_step()
        self.assertEqual(step % (STEPS // 8), 0)
        self.assertLess(step, STEPS)
        self.assertEqual(job_status(self.output), "unfinished")
        self.check_goes_on(4)

    @only_long
    def test_validation(self):
        """It changes nothing of the training, and is the same after a stop and a kill, and on other
        ranks."""
        self.own_cache = True
        own = self.folder / "validation.csv"
        with open(own, "w", newline="") as file:
            csv.writer(file).writerows([("video", "prompt")] + [
                (self.clips / f"{i:03}.mkv", f"a circle rises, {i}") for i in (5, 2)])
        options = {"train__validate_every": 9, "data__validation": own}
        output, self.output = self.output, self.folder / "undisturbed"
        outcome = self.check_trained(**options)
        self.assertEqual(len(outcome.lines("validation after ")), 4, outcome)
        self.assertRegex(outcome.errors, rf"\nstep \d+: loss [\d.]+, validation [\d.]+\nresults: ")
        self.assertIn(f"validation after each 9 steps on 2 clips of {own}", outcome.errors)
        self.check_same(self.output, self.expected)
        validated = values_of(self.output)
        self.assertEqual(list(validated[0]["validation_step"]), [0, 9, STEPS])
        self.assertEqual(list(validated[0]["validation_timestep"]), [125, 375, 625, 875])
        losses = validated[0]["validation_loss"]
        self.assertTrue((losses > 0).all())
        self.assertEqual(len(set(losses.ravel())), 12)
        self.assertEqual(len(self.encoded()), CLIPS)
        for number, of in ((0, 5), (1, 2)):  # the videos are encoded once
            self.assertEqual(self.sample(number, group="validation_samples").tobytes(),
                             self.sample(of).tobytes())
        self.output = output
        # While samples are encoded, or in the first validation.
        outcome = self.disturb(2, lambda job, ranks: job.send_signal(signal.SIGUSR1),
                               self.options(**options),
                               lambda: len(self.encoded()) == CLIPS)
        self.assertEqual(outcome.status, STOPPED, outcome)
        outcome = self.disturb(3, lambda job, ranks: os.kill(ranks[2], signal.SIGKILL),
                               self.options(train__save_every=2, output__if_exists="resume",
                                            **options), lambda: self.saved_step() >= 10)
        self.assertNotIn(outcome.status, (0, STOPPED), outcome)
        self.assertLess(self.saved_step(), STEPS)
        self.check_goes_on(2, **options)
        self.check_same(self.output, validated)
        # Complete, without validation: what is there is kept. Other clips: it is not.
        self.check_trained(2, output__if_exists="resume")
        self.check_same(self.output, validated)
        outcome = self.train(2, output__if_exists="resume", train__validate_every=9)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(len(outcome.lines(WARNING)), 1, outcome)
        self.assertIn("validation losses are of other clips", outcome.lines(WARNING)[0])
        self.assertIn("4 clips of the training data", outcome.errors)
        rows, _ = values_of(self.output)
        self.assertEqual(list(rows["validation_step"]), [STEPS])
        self.assertNotEqual(list(rows["validation_loss"][0]), list(losses[-1]))

    def test_stops_and_is_killed_while_samples_are_encoded(self):
        self.own_cache = True
        outcome = self.disturb(1, lambda job, ranks: job.send_signal(signal.SIGTERM),
                               self.options(), lambda: len(self.encoded()) >= 2)
        first = state_of(self.output / "cache")
        if self.saved_step() == 0:  # otherwise the machine was too slow to stop it in time
            self.check_stopped(outcome, "SIGTERM", "samples that are encoded are kept")
            self.assertLess(len(self.encoded()), CLIPS)
            self.disturb(1, lambda job, ranks: job.kill(),
                         self.options(output__if_exists="resume"),
                         lambda: len(self.encoded()) >= 4)
        kept = {path: state for path, state in state_of(self.output / "cache").items()
                if path in self.encoded()}
        self.assertGreaterEqual(len(kept), 4)
        for path in self.encoded():
            self.assertEqual(first.get(path, kept[path]), kept[path], path)
        self.check_goes_on(3)
        self.assertEqual(len(self.encoded()), CLIPS)
        now = state_of(self.output / "cache")
        for path, state in kept.items():
            self.assertEqual(now[path], state, path)
        captions = set(self.captions) | {""}
        self.assertEqual(len(now), CLIPS + len(captions))

    def status(self):
        path = self.output / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    @only_long
    def test_a_running_training_tells_what_it_does(self):
        many = {"train__steps": 100000, "train__save_every": 5}
        outcome = self.disturb(3, lambda job, ranks: os.kill(ranks[1], signal.SIGKILL),
                               self.options(**many), lambda: self.status().get("saved_step"))
        self.assertNotIn(outcome.status, (0, STOPPED), outcome)
        found = self.status()  # what a job that was killed did last
        self.assertEqual(list(found), ["updated", "steps", "complete", "state", "loss",
                                       "step_seconds", "saved_step", "ranks"])
        self.assertEqual((found["steps"], found["state"]), (100000, "training"))
        self.assertEqual(found["saved_step"] % 5, 0)
        self.assertIn(found["complete"] - found["saved_step"], range(6))  # 5: before it was saved
        self.assertGreater(found["step_seconds"], 0)
        self.assertEqual([rank["rank"] for rank in found["ranks"]], [0, 1, 2])
        for rank in found["ranks"]:
            self.assertGreater(rank["process"], 0)
            self.assertNotIn("steps", rank)
        self.check_trained(2, output__if_exists="resume", train__steps=found["complete"])
        self.assertEqual(values_of_rows(self.output)["loss"][-1], found["loss"])
        self.assertEqual(self.status(), {})

        outcome = self.disturb(2, lambda job, ranks: job.send_signal(signal.SIGUSR1),
                               self.options(output__if_exists="resume", **many),
                               lambda: self.status().get("complete", 0) > found["complete"])
        self.check_stopped(outcome, "SIGUSR1", f"{self.saved_step()} of 100000 steps are done")
        self.assertGreater(self.saved_step(), found["complete"])
        self.assertEqual(self.status(), {})

    @only_long
    def test_a_rank_that_hangs_is_noticed(self):
        outcome = self.disturb(2, lambda job, ranks: [ranks[1]],
                               self.options(restart__every=1, device__timeout="3s"),
                               lambda: self.saved_step() >= 2)
        self.assertEqual(outcome.status, WATCHDOG, outcome)
        errors = outcome.lines(ERROR)
        self.assertEqual(len(errors), 1, outcome)
        self.assertIn("rank 1: no sign of life for 3", errors[0])
        self.check_goes_on(2)

    def test_full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        size = {"lora__rank": 16, "train__steps": 6}
        self.check_trained(**size)
        expected = values_of(self.output)
        # Room for a state of 1.8 MB and a LoRA of 0.6 MB, and not for the next state beside them.
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3500k", "none", disk],
                               capture_output=True, text=True)
        if mount.returncode != 0:
            print(f"skipped: {mount.stderr.strip()}", flush=True)
            self.skipTest("no file system can be mounted here")
        try:
            self.output = disk / "output"
            self.check_refused(74, self.output / "restart", "space", ranks=2, restart__every=4,
                               **size)
            self.assertEqual(self.saved_step(), 4)
            self.assertEqual(list(self.output.glob("**/.*")), [])
            subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
            self.check_trained(output__if_exists="resume", **size)
            self.check_same(self.output, expected)
        finally:
            subprocess.run(["umount", disk], check=True)


class RefusalTest(Training):
    def options(self, **more):
        return super().options(**{"train__steps": 3} | more)

    def check_nothing_made(self):
        self.assertEqual(list(self.output.glob("*")), [])

    def write_list(self, name, *rows):
        """A list of videos with captions as data.path."""
        path = self.folder / name
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([("video", "prompt"), *rows])
        return path

    def good_rows(self):
        return [(self.clips / f"{i:03}.mkv", caption) for i, caption in enumerate(self.captions)]

    def test_what_cannot_be_trained(self):
        for status, texts, options in (
                (66, ("data.path: ", "not found"), {"data__path": self.folder / "none"}),
                (64, ("data.path: found ", "expected a folder or a file"),
                 {"data__path": self.clips / "000.mkv"}),
                (64, ("lora.targets: no layer of the model ends with to_q", "attn.qkv"),
                 {"model__path": OPEN_SORA / "v1_0", "data__frames": 9}),
                (64, ("lora.targets: no layer of the model ends with qkv", "attn1.to_q"),
                 {"lora__targets": "to_q,qkv"}),
                (64, ("data.frames: ", "9 x 240 x 426", "17 or more"),
                 {"model__path": OPEN_SORA / "v1_2", "train__method": "full", "data__frames": 9}),
                (64, ("train.image-dropout: found 0.1, expected it only for a model that makes"),
                 {"train__image_dropout": 0.1}),
                (64, ("train.flow-shift: found 3, expected none: ",), {"train__flow_shift": 3}),
                (64, ("train.timesteps: found logit-normal, expected none: ",),
                 {"train__timesteps": "logit-normal"}),
                (64, ("train.logit-std: found 2, expected train.timesteps = logit-normal with it",),
                 {"model__path": WAN, "data__frames": 9, "train__logit_std": 2}),
                (64, ("train.min-snr: found 5, expected off: ",),
                 {"model__path": WAN, "data__frames": 9, "train__min_snr": 5}),
                (64, ("train.min-rate: found 1, expected at most train.learning-rate = 0.01",),
                 {"train__min_rate": 1}),
                (64, ("data.frames: found 16, expected a multiple of 4 and one more, for instance "
                      "13 or 17",), {"model__path": WAN, "data__frames": 16}),
                (64, ("lora.targets: no layer of the model ends with qkv", "ffn.net.2"),
                 {"model__path": WAN, "data__frames": 9, "lora__targets": "qkv"}),
                (64, ("train.sample-every: found 1, expected train.sample-prompts",),
                 IMAGE_MODEL | {"train__sample_every": 1}),
                (64, ("--lora.targets: found 'to_x', expected one of to_q",),
                 {"lora__targets": "to_q,to_x"}),
                (64, ("parallel.mode: found split, expected auto or phased",),
                 {"parallel__mode": "split", "ranks": 2}),
                (64, ("parallel.cfg: found 2, expected 1 or auto",),
                 {"parallel__cfg": 2, "ranks": 2}),
                (64, ("data.height: ", "has 40, expected a multiple of 16"), {"data__height": 40}),
                (64, ("data.buckets: 9x40x64: height: ", "has 40, expected a multiple of 16"),
                 {"data__buckets": "9x64x64,9x40x64"}),
                (64, ("data.buckets: found with data.height", "expected one of them"),
                 {"data__buckets": "9x64x64", "data__height": 64}),
                (64, ("unknown option --output.video",), {"output__video": "no"}),
                (64, ("data.validation: found '", "expected train.validate-every"),
                 {"data__validation": self.clips}),
                (66, ("data.validation: '", "not found"),
                 {"data__validation": self.folder / "none", "train__validate_every": 1}),
                (69, ("need 6 ranks, the job has 2",), {"parallel__replicas": 6, "ranks": 2}),
                (69, ("device.memory-limit", "1.00 MiB"), {"device__memory_limit": "1MiB"})):
            with self.subTest(options=options):
                self.check_refused(status, *texts, **options)
                self.check_nothing_made()

    def test_videos_that_cannot_be_used_are_left_out(self):
        broken, short = self.folder / "broken.mkv", self.folder / "short.gif"
        broken.write_bytes((self.clips / "000.mkv").read_bytes()[:2000])
        subprocess.run(["ffmpeg", "-v", "error", "-i", self.clips / "000.mkv", "-frames:v", "5",
                        short], check=True)
        bad = {self.folder / "missing.mkv": ("cannot be opened: No such file", 66),
               broken: ("", 65), short: ("has 5 frames", 65)}
        good = self.good_rows()
        all_rows = good[:2] + [(path, "a shape") for path in bad] + good[2:]
        self.check_trained(data__path=self.write_list("good.csv", *good))
        expected = values_of(self.output)
        numbers = expected[0]["sample"]
        numbers[numbers >= 2] += len(bad)  # in the list with the others
        self.output = self.folder / "some"
        outcome = self.train(2, data__path=self.write_list("all.csv", *all_rows))
        self.assertEqual(outcome.status, 0, outcome)
        warnings = outcome.lines(WARNING)
        self.assertEqual(len(warnings), 3, outcome)
        for line, (path, (problem, _)), text in zip((4, 5, 6), bad.items(), warnings):
            self.assertIn(f"all.csv:{line}: {path}: ", text)
            self.assertIn(problem, text)
            self.assertIn("; it is left out", text)
        self.check_same(self.output, expected)
        self.output = self.folder / "none"
        for path, (problem, status) in bad.items():
            self.check_refused(status, f"one.csv:3: {path}: {problem}", data__strict="yes",
                               data__path=self.write_list("one.csv", good[0], (path, "a shape")))
            self.check_nothing_made()
        outcome = self.train(data__path=self.write_list("bad.csv", *[(p, "a shape") for p in bad]))
        self.assertEqual(outcome.status, 65, outcome)
        self.assertEqual(len(outcome.lines(WARNING)), 3, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        self.assertIn("none of the 3 videos in ", outcome.errors)
        self.check_nothing_made()

    def test_a_video_that_takes_longer_than_the_others(self):
        # Rank 1 reads its caption long after rank 0 has encoded its last video.
        self.own_cache = True
        large = self.folder / "large.mkv"
        subprocess.run(["ffmpeg", "-v", "error", "-i", self.clips / "001.mkv", "-vf",
                        "scale=3840:2160", "-codec:v", "mjpeg", large], check=True)
        good = self.good_rows()
        rows = self.write_list("list.csv", good[0], (large, good[1][1]))
        self.check_trained(2, data__path=rows, train__steps=1)
        self.assertEqual(len(self.encoded()), 2)

    @only_long
    def test_a_cache_that_several_jobs_use(self):
        cache = self.folder / "cache"
        shared = {"data__cache": cache}
        self.check_trained(2, **shared)
        expected, files = values_of(self.output), state_of(cache)
        self.assertFalse((self.output / "cache").exists())
        # What changes a sample has a file of its own; nothing that is there changes.
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        weights = model / "vae" / "diffusion_pytorch_model.safetensors"
        flip_bit(weights, weights.stat().st_size - 4)
        videos = len(self.encoded(cache))
        for more in ({"data__height": 48}, {"model__path": model}, {"numerics__dtype": "bfloat16"}):
            with self.subTest(more=more):
                self.output = self.folder / f"other{videos}"
                self.check_trained(2, **shared | more)
                videos += CLIPS
                self.assertEqual(len(self.encoded(cache)), videos)
        self.assertLessEqual(files.items(), state_of(cache).items())
        # A damaged file, and one that is missing, are made again, and only these.
        self.output = self.folder / "other"
        damaged, missing = [path for path in self.encoded(cache) if path in files][:2]
        with h5py.File(damaged) as file:
            place = file["latent_mean"].id.get_chunk_info(0).byte_offset
        flip_bit(damaged, place + 5)
        missing.unlink()
        outcome = self.train(3, **shared)
        self.assertEqual(outcome.status, 0, outcome)
        warnings = outcome.lines(WARNING)
        self.assertEqual(len(warnings), 1, outcome)
        self.assertIn(f"{damaged} is damaged; it is made again", warnings[0])
        self.check_same(self.output, expected)
        later = state_of(cache)
        self.assertEqual({path for path in files if later[path] != files[path]},
                         {damaged, missing})

    def test_two_trainings_that_encode_the_same_samples_at_once(self):
        """A list with another caption, another clip in front and one video on two lines needs no
        other video; numbers of samples are those of the list."""
        cache, rows = self.folder / "cache", self.good_rows()
        lists = [self.write_list("one.csv", *rows[1:]),
                 self.write_list("two.csv", rows[0], *rows[1:-1], (rows[-1][0], "another"), rows[1])]
        outputs = [self.folder / name for name in ("one", "two")]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(lambda job: self.train(
                data__path=job[0], output__path=job[1], data__cache=cache, train__steps=1),
                zip(lists, outputs)))
        for outcome in outcomes:
            self.assertEqual(outcome.status, 0, outcome)
            self.assertEqual(outcome.lines(WARNING), [], outcome)
        self.assertEqual(len(self.encoded(cache)), CLIPS)
        self.assertEqual([path for path in cache.iterdir() if len(path.stem) != 32], [])
        found = []
        for self.output in outputs:
            found.append([self.sample(i).tobytes() for i in range(6)])
        self.assertEqual(found[0][:5], found[1][1:])
        self.assertEqual(self.sample(7).tobytes(), found[1][1])
        with h5py.File(outputs[1] / "job.h5") as file:
            told = dict(file["samples/000006"].attrs)
        self.assertEqual((told["prompt"], told["file"]), ("another", str(rows[-1][0])))

    def test_videos_that_an_earlier_job_read(self):
        """What was found in a video is remembered, so that a job that needs no sample reads none."""
        home, cache = self.folder / "home", self.folder / "cache"
        newest = max(path.stat().st_ctime for path in self.clips.iterdir())
        time.sleep(max(0, newest + 2.5 - time.time()))  # younger files are not remembered

        def train(name, ranks, said="", **more):
            outcome = run(self.options(**{"output__path": self.folder / name, "data__cache": cache,
                                          "train__steps": 1} | more), ranks,
                          {"XDG_CACHE_HOME": str(home)}, name="train")
            self.assertEqual(outcome.status, 0, outcome)
            self.assertIn(said, outcome.errors)
            return values_of(self.folder / name), state_of(home / "reelmesh" / "inputs")

        values, known = train("first", 2)
        self.assertEqual(len(known), CLIPS)
        for name, ranks in ("again", 1), ("more", 3):
            found, later = train(name, ranks)
            self.assertEqual(later, known)  # a video that is read is remembered anew
            self.assertEqual(found[1], values[1])
        # A training that has begun goes on without them.
        later = {"train__steps": 3, "output__if_exists": "resume"}
        expected, _ = train("again", 1, **later)
        away = self.folder / "away"
        away.mkdir()
        for path in self.clips.glob("*.mkv"):
            shutil.move(path, away)
        try:
            found, _ = train("more", 2, f"{CLIPS} of {CLIPS} videos are no longer there", **later)
        finally:
            for path in away.iterdir():
                shutil.move(path, self.clips)
        self.assertEqual(found[1], expected[1])

    def test_an_output_folder_with_a_training(self):
        self.own_cache = True
        self.check_trained(2)
        expected = values_of(self.output)
        files = state_of(self.output)
        again = {"output__if_exists": "resume", "train__steps": 6}
        rows = self.good_rows()
        captions = self.write_list("captions.csv", *rows[:-1], (rows[-1][0], "another caption"))
        less = self.write_list("less.csv", *rows[:-1])
        saved = self.output / "restart" / "training.h5"
        for status, texts, more in (
                (73, ("is not empty", "resume to train on", "replace to start again"), {}),
                (65, (f"{saved}: is of another training: found train.seed 42, expected "
                      "train.seed 7",), {**again, "train__seed": 7}),
                (65, ("found train.learning-rate 0.01, lora.rank 4, lora.alpha 4",
                      "expected train.learning-rate 0.02, lora.rank 2, lora.alpha 2"),
                 {**again, "lora__rank": 2, "train__learning_rate": 0.02}),
                (65, ("found data.height 64, expected data.height 48",),
                 {**again, "data__height": 48}),
                (65, ("found videos and prompts ", "expected videos and prompts "),
                 {**again, "data__path": captions}),
                (65, ("found videos and prompts ", "expected videos and prompts "),
                 {**again, "data__path": less}),
                (65, (f"{saved}: found step 3, expected 0 to train.steps = 2",),
                 {**again, "train__steps": 2}),
                (64, ("model.lora: found ", "which this job writes itself"),
                 {"output__if_exists": "replace", "model__lora": self.output / "lora"}),
                (64, ("lora.init: found ", "which this job writes itself"),
                 {"output__if_exists": "replace", "lora__init": self.output / "lora"}),
                (64, ("data.cache: found ", "which this job writes itself"),
                 {"output__if_exists": "replace", "data__cache": self.output / "restart"}),
                (64, ("data.cache: found ", "which this job writes itself"),
                 {"output__if_exists": "replace", "data__cache": self.output})):
            with self.subTest(more=more):
                self.check_refused(status, *texts, **more)
                self.assertEqual(state_of(self.output), files)
        foreign = self.output / "samples" / "step-000004"
        (foreign / "clips").mkdir(parents=True)
        (foreign / "clips" / "000000.h5").write_text("mine")
        with_foreign = state_of(self.output)
        self.check_refused(73, f"output folder {foreign} is not empty and not of a job",
                           train__sample_every=2, **again)
        self.assertEqual(state_of(self.output), with_foreign)
        shutil.rmtree(foreign.parent)
        clips = {"model.path": MODEL, "output.path": self.output, "prompt.text": "a red circle",
                 "sample.steps": 1}
        outcome = run(clips | {"output.if-exists": "resume"})
        self.assertEqual(outcome.status, 73, outcome)
        self.assertIn("metrics.h5, of a job that trains; expected one that makes clips",
                      outcome.errors)
        self.assertEqual(state_of(self.output), files)

        # The same videos and captions from another list are the same training, and a size may be
        # given or be the checkpoint's. The steps are done already.
        outcome = self.check_trained(2, output__if_exists="resume", train__steps=3,
                                     data__height=64, data__path=self.write_list("same.csv", *rows))
        self.assertIn("3 steps were done before, 3 are asked for", outcome.errors)
        self.check_same(self.output, expected)
        self.assertEqual(job_status(self.output), "complete")

        (self.output / "cache" / "mine.txt").write_text("mine")
        self.check_trained(output__if_exists="replace", data__height=48)
        for number in range(CLIPS):
            self.assertEqual(self.sample(number).shape[2:], (6, 8))
        self.assertNotEqual(values_of(self.output)[1], expected[1])
        self.assertTrue((self.output / "cache" / "mine.txt").exists())
        self.assertFalse((self.output / "clips").exists())

        self.output = self.folder / "clips"
        self.make(clips | {"output.path": self.output, "sample.fps": 8})
        files = state_of(self.output)
        own = self.output / "clips" / "000000.h5"
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text(json.dumps({"prompt": "a", "video": f"{self.output}/job.h5:0"}))
        for where, more in (
                ("own.csv:2: ", {"data__path": self.write_list("own.csv", (own, "a caption"))}),
                (f"{prompts}:1: video: ", {"train__sample_every": 2,
                                           "train__sample_prompts": prompts})):
            with self.subTest(where=where):
                self.check_refused(64, where, "a file that this job writes itself in output.path",
                                   output__if_exists="replace", **more)
                self.assertEqual(state_of(self.output), files)
        self.check_refused(73, "clips/000000.h5, of a job that makes clips; expected one that "
                           "trains", **again)
        self.assertEqual(len(result_files(self.output)), 3)

    def test_a_loss_that_is_not_finite(self):
        # One caption has a token that no other one has, and that token has no finite embedding.
        rows = [(path, "a red circle") for path, _ in self.good_rows()]
        rows[4] = (rows[4][0], "a red zebra")
        self.make({"model.path": MODEL, "output.path": self.folder / "tokens", "sample.steps": 1,
                   "output.video": "no", "prompt.text": ["a red circle", "a red zebra"]})
        known, other = [set(read_clip(self.folder / "tokens", i)["token_ids"]) for i in range(2)]
        token = (other - known).pop()
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        path = model / "text_encoder" / "model.safetensors"
        header, data = read_header(path)
        shared = header["shared.weight"]
        item = {"F32": 4, "F16": 2, "BF16": 2}[shared["dtype"]]
        width = shared["shape"][1] * item
        begin = shared["data_offsets"][0] + int(token) * width
        write_header(path, header, data[:begin] + b"\xff" * width + data[begin + width:])
        options = {"model__path": model, "data__path": self.write_list("list.csv", *rows),
                   "data__shuffle": "no", "train__caption_dropout": 0, "train__steps": 5}
        self.check_trained(**options | {"train__steps": 2})
        expected = values_of(self.output)
        # The third step has clips 4 and 5; on one rank, and on the first of two replicas.
        for ranks, found_on in ((1, "0"), (2, "0")):
            self.output = self.folder / f"on {ranks}"
            self.check_refused(65, "step 3 of 5: the loss of ", "list.csv:6: ", "004.mkv",
                               f"is not finite, found first on rank {found_on}",
                               "what was saved before is kept", ranks=ranks, train__save_every=1,
                               **options)
            self.assertEqual(self.saved_step(), 2)
            self.check_same(self.output, expected)
            self.assertEqual(job_status(self.output), "unfinished")
        self.check_refused(65, "step 3 of 5: ", output__if_exists="resume", **options)
        self.check_same(self.output, expected)
        self.check_refused(65, "validation after 2 of 5 steps: the loss of ", "zebra.csv:3: ",
                           "at timestep 125, is not finite", output__if_exists="resume",
                           train__validate_every=1, ranks=2, **options | {
                               "data__validation": self.write_list("zebra.csv", rows[0], rows[4])})
        self.check_same(self.output, expected)

    @only_long
    def test_a_gradient_that_is_not_finite(self):
        # The last layer takes values of 1e34 and gives zero, until it has learned from them: then
        # it gives 1e9 or so, and its weight's gradient is too large for float32.
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        path = model / "transformer" / "diffusion_pytorch_model.safetensors"
        header, data = read_header(path)
        for name, value in (("proj_out.weight", 0), ("norm_out.norm.weight", 1e34)):
            self.assertEqual(header[name]["dtype"], "BF16")
            begin, end = header[name]["data_offsets"]
            item = numpy.float32(value).tobytes()[2:]
            data = data[:begin] + item * ((end - begin) // 2) + data[end:]
        write_header(path, header, data)
        options = {"model__path": model, "train__method": "full", "train__optimizer": "sgd",
                   "train__learning_rate": 1e-19, "train__clip": 1e-6, "train__warmup": 0,
                   "train__caption_dropout": 0, "train__steps": 5}
        self.check_trained(**options | {"train__steps": 1})
        expected = self.rows_and_weights(self.output)
        self.assertGreater(expected[0]["gradient_norm"][0], 1e25)
        for ranks in (1, 2):
            self.output = self.folder / f"on {ranks}"
            self.check_refused(65, "step 2 of 5: found nan as the norm of the gradient, expected a "
                               "finite number; what was saved before is kept", ranks=ranks,
                               parallel__replicas=1, train__save_every=1, **options)
            self.assertEqual(self.saved_step(), 1)
            self.check_same_weights(self.output, expected)
            self.assertEqual(job_status(self.output), "unfinished")
        self.check_refused(65, "step 2 of 5: found nan as the norm", output__if_exists="resume",
                           **options)
        self.check_same_weights(self.output, expected)

    @only_long
    def test_more_ranks_than_are_used(self):
        self.check_trained()
        expected = values_of(self.output)
        self.output = self.folder / "idle"
        outcome = self.train(3, parallel__replicas=1, parallel__ring=2, parallel__text=1,
                             parallel__decode=2)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(len(outcome.lines(WARNING)), 1, outcome)
        self.assertIn("rank 2", outcome.lines(WARNING)[0])
        self.check_same(self.output, expected)

    @only_long
    def test_a_batch_larger_than_the_data(self):
        """It has clips of several epochs, with numbers of their own."""
        self.check_trained(2, train__steps=1, train__batch=10, train__warmup=0)
        rows, _ = values_of(self.output)
        losses = []
        for ranks, batch, steps in ((1, 1, 10), (3, 5, 2)):
            self.output = self.folder / f"{batch} {steps}"
            # Without learning, a loss depends on the number of the sample alone.
            self.check_trained(ranks, train__steps=steps, train__batch=batch,
                               train__learning_rate=0)
            losses.append(values_of(self.output)[0]["loss"].mean())
        for loss in losses:
            self.assertAlmostEqual(loss, rows["loss"][0], delta=1e-12)


class BucketsTest(Training):
    """Clips of three sizes in one training: four whole ones, two that are less high, one short."""

    BUCKETS = {"data__buckets": "9x64x64,9x48x64,5x64x64,17x64x64"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="reelmesh_train_"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.clips = shutil.copytree(cls.clips, cls.shared / "clips")
        for number, change in ((1, ["-vf", "crop=64:48"]), (4, ["-vf", "crop=64:48"]),
                               (5, ["-frames:v", "6"])):
            clip, before = cls.clips / f"{number:03}.mkv", cls.shared / "before.mkv"
            clip.rename(before)
            subprocess.run(["ffmpeg", "-v", "error", "-i", before, *change, "-codec:v", "ffv1",
                            clip], check=True)

    def check_rows(self):
        """A step has clips of one size, and each clip is used as often as others, but for those
        that wait for a second one."""
        with h5py.File(self.output / "metrics.h5") as file:
            samples = file["sample"][()]
        self.assertEqual(samples.shape, (STEPS, 2))
        of = {1: 1, 4: 1, 5: 2}
        for row in samples:
            self.assertEqual(of.get(row[0], 0), of.get(row[1], 0), row)
        self.assertEqual({int(i) for i in samples.ravel()}, set(range(CLIPS)))
        counts = numpy.bincount(samples.ravel(), minlength=CLIPS)
        self.assertLessEqual(counts.max() - counts.min(), 3, counts)

    @only_long
    def test_on_any_ranks_and_after_a_kill(self):
        options = self.BUCKETS | {"train__validate_every": 12}
        outcome = self.train(**options)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.lines(ERROR), [], outcome)
        warnings = outcome.lines(WARNING)
        self.assertEqual(len(warnings), 1, outcome)
        self.assertIn("data.buckets: 17x64x64 suits none of the 7 videos", warnings[0])
        self.assertIn("training on 7 clips, 4 of 9x64x64, 2 of 9x48x64, 1 of 5x64x64 (frames "
                      "x height x width), 2 in a step", outcome.errors)
        self.check_rows()
        shapes = {0: (3, 16, 8, 8), 1: (3, 16, 6, 8), 4: (3, 16, 6, 8), 5: (2, 16, 8, 8)}
        for number, shape in shapes.items():
            self.assertEqual(self.sample(number).shape, shape)
        expected = values_of(self.output)
        self.output = self.folder / "killed"
        self.disturb(3, lambda job, ranks: os.kill(ranks[1], signal.SIGKILL),
                     self.options(train__save_every=2, parallel__replicas=1, **options),
                     lambda: self.saved_step() >= 6)
        self.assertLess(self.saved_step(), STEPS)
        for ranks, more in ((2, {"output__if_exists": "resume"}),
                            (3, {"output__path": self.folder / "three"})):
            self.output = more.get("output__path", self.output)
            outcome = self.train(ranks, **options, **more)
            self.assertEqual(outcome.status, 0, outcome)
            self.check_same(self.output, expected)

    def test_plan_shows_all_sizes(self):
        options = self.options(ranks=2, **self.BUCKETS)
        options.pop("output.path")
        outcome = run(options, name="plan")
        self.assertEqual(outcome.status, 0, outcome)
        for size in ("9x64x64", "9x48x64", "5x64x64", "17x64x64"):
            self.assertIn(size, outcome.output)


class SamplesTest(Training):
    """Clips that are made while a training goes on."""

    MADE = {"train__sample_every": 2, "train__sample_steps": 10}
    plain = None  # values and state of a training without them

    def options(self, **more):
        return super().options(**{"train__steps": 3} | more)

    def setUp(self):
        super().setUp()
        self.reference = shared_folder() / "made"
        if SamplesTest.plain is None:
            self.output = self.folder / "plain"
            self.check_trained()
            SamplesTest.plain = values_of(self.output), self.state()
            self.check_trained(2, output__path=self.reference, **self.MADE)
            self.output = self.folder / "output"

    def made(self, step, clip=0, name="latents", output=None):
        return read_clip((output or self.output) / "samples" / f"step-{step:06}", clip)[name]

    def check_state(self):
        """As of a training without such clips: metrics, what is trained, and the state."""
        self.check_same(self.output, self.plain[0])
        for name, values in self.plain[1].items():
            self.assertEqual(self.state()[name].tobytes(), values.tobytes(), name)

    def state(self):
        with h5py.File(self.output / "restart" / "training.h5") as file:
            return {name: array[()] for name, array in file.items()} | {"step": numpy.int64(
                file.attrs["step"])}

    def test_are_those_of_run(self):
        self.output = self.reference
        self.check_state()
        self.assertEqual(sorted(path.name for path in (self.output / "samples").iterdir()),
                         ["step-000000", "step-000002", "step-000003"])
        self.assertEqual(list(self.output.glob("**/.*")), [])
        for step in (0, 2, 3):
            folder = self.output / "samples" / f"step-{step:06}"
            self.assertEqual(job_status(folder), "complete")
            self.assertEqual(len(list((folder / "clips").iterdir())), 2)
        self.assertFalse(numpy.array_equal(self.made(0), self.made(3)))
        clips = {"model.path": MODEL, "prompt.text": self.captions[:2], "sample.steps": 10,
                 "sample.seed": 42}
        for step, more in ((0, {}), (3, {"model.lora": self.output / "lora"})):
            output = self.folder / f"run {step}"
            self.make(clips | {"output.path": output} | more)
            for clip in (0, 1):
                for name in ("latents", "video"):
                    numpy.testing.assert_array_equal(
                        self.made(step, clip, name), read_clip(output, clip)[name], f"{step}")
        # The job is one of run, and can be run again.
        again = self.folder / "again"
        outcome = execute([PROGRAM, "run", "--from", self.output / "samples/step-000003/job.h5",
                           "--output.path", again])
        self.assertEqual(outcome.status, 0, outcome)
        numpy.testing.assert_array_equal(read_clip(again, 1)["video"], self.made(3, 1, "video"))
        # What is complete stays, what is missing is made again with the same bits.
        before = state_of(self.output / "samples")
        lost = self.output / "samples/step-000003/clips/000001.h5"
        video = self.made(3, 1, "video")
        lost.unlink()
        self.check_trained(output__if_exists="resume", **self.MADE)
        self.check_state()
        numpy.testing.assert_array_equal(self.made(3, 1, "video"), video)
        now = state_of(self.output / "samples")
        kept = [path for path in before if path.suffix == ".h5" and path.parent.name == "clips"
                and path != lost]
        self.assertEqual(len(kept), 5)
        for path in kept:
            self.assertEqual(now[path], before[path], path)

    def test_of_a_mean_and_of_all_weights(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"prompt": "a red circle", "steps": 2, "seed": 7}\n')
        more = {"train__method": "full", "train__ema": 0.9, "train__learning_rate": 1e-3,
                "train__sample_every": 3, "train__sample_prompts": prompts,
                "train__sample_guidance": 2}
        self.check_trained(**more)
        output = self.folder / "run"
        self.make({"model.path": MODEL, "model.transformer": self.output / "transformer",
                   "prompt.file": prompts, "sample.guidance": 2, "output.path": output})
        numpy.testing.assert_array_equal(self.made(3), read_clip(output)["latents"])
        self.assertFalse(numpy.array_equal(self.made(0), self.made(3)))

    @only_long
    def test_goes_on_after_a_stop_and_a_kill(self):
        for step, ranks, disturbance, stops in (
                (0, 1, lambda job, ranks: job.send_signal(signal.SIGUSR1), True),
                (2, 2, lambda job, ranks: os.kill(ranks[1], signal.SIGKILL), False),
                (3, 2, lambda job, ranks: os.kill(ranks[1], signal.SIGTERM), True)):
            folder = self.output / "samples" / f"step-{step:06}"
            resume = {"output__if_exists": "resume"} if step else {}
            outcome = self.disturb(ranks, disturbance, self.options(**self.MADE | resume),
                                   (folder / "job.h5").exists)
            self.assertEqual(outcome.status == STOPPED, stops, outcome)
            self.assertNotEqual(outcome.status, 0, outcome)
            self.assertEqual(self.saved_step(), step)
            self.assertEqual(job_status(self.output), "stopped" if stops else "unfinished")
            if stops:
                self.assertEqual(outcome.lines(ERROR) + outcome.lines(WARNING), [], outcome)
                said = outcome.lines("stopped on request")
                self.assertEqual(len(said), 1, outcome)
                self.assertIn(f"{step} of 3 steps are done and saved", said[0])
                self.assertNotEqual(job_status(folder), "complete")
        self.check_trained(output__if_exists="resume", **self.MADE)
        self.check_state()
        for step in (0, 2, 3):
            for number in (0, 1):
                numpy.testing.assert_array_equal(self.made(step, number),
                                                 self.made(step, number, output=self.reference))

    def test_what_cannot_be_made(self):
        for status, texts, options in (
                (64, ("train.sample-prompts: found '", "expected train.sample-every"),
                 {"train__sample_every": "off", "train__sample_prompts": self.large()}),
                (66, ("train.sample-prompts: ", "none.txt"),
                 {"train__sample_prompts": self.folder / "none.txt"}),
                (69, ("train.sample-every: the clips that are made: ", "device.memory-limit"),
                 {"train__sample_prompts": self.large(), "device__memory_limit": "200MiB"})):
            with self.subTest(options=options):
                self.check_refused(status, *texts, **self.MADE | options)
                self.assertEqual(list(self.output.glob("*")), [])
        options = self.options(**self.MADE, train__sample_prompts=self.large())
        found = self.planned(options | {"output.path": self.output}, "--ranks", 2)
        self.assertEqual(found["samples"]["clip"]["height"], 256)
        self.assertGreater(*(max(rank["memory"]["peak"] for rank in plan["by_rank"])
                             for plan in (found["samples"], found)))

    def large(self):
        path = self.folder / "large.jsonl"
        path.write_text('{"prompt": "a red circle", "height": 256, "width": 256, "frames": 49}\n')
        return path


class UseTest(Training):
    def test_alpha_folded_into_the_matrices(self):
        options = {"train__steps": 3, "lora__alpha": 6, "lora__rank_pattern": "to_k=2"}
        outcome = self.check_trained(**options)
        self.assertIn("lora.fold-alpha = yes", outcome.errors)
        stored = read_safetensors(lora_file(self.output))
        latents = self.clip(self.output / "lora")
        self.output = self.folder / "folded"
        outcome = self.check_trained(**options, lora__fold_alpha="yes")
        self.assertNotIn("lora.fold-alpha", outcome.errors)
        folded = read_safetensors(lora_file(self.output))
        for name, values in stored.items():
            # As with PEFT, a layer with a rank of its own keeps lora.alpha.
            factor = 6 / (2 if ".to_k." in name else 4) if ".lora_B." in name else 1
            numpy.testing.assert_array_equal(folded[name], values * numpy.float32(factor))
        inspected = execute([PROGRAM, "inspect", self.output / "lora"])
        self.assertIn("factor, alpha / rank: 1 (24)", inspected.output)
        self.assertLess(relative(self.clip(self.output / "lora"), latents), 1e-5)

    def clip(self, *loras, ranks=1, **more):
        output = self.folder / f"of {len(list(self.folder.iterdir()))}"
        self.make({"model.path": MODEL, "output.path": output, "prompt.text": self.captions[0],
                   "sample.steps": 4, "model.lora": list(loras)} | more, ranks)
        return read_clip(output)["latents"]

    def test_the_lora_is_used(self):
        one_epoch = {"train__batch": 1, "train__warmup": 0, "train__caption_dropout": 0,
                     "data__shuffle": "no"}
        self.check_trained(train__steps=CLIPS + 1, train__save_every=CLIPS, **one_epoch)
        next_loss = values_of(self.output)[0]["loss"][CLIPS]
        trained = lora_file(self.output)
        inspected = execute([PROGRAM, "inspect", self.output / "lora"])
        self.assertEqual(inspected.status, 0, inspected)
        for text in ("24 modules: ", "rank 4 (24)", "factor, alpha / rank: 1 (24)"):
            self.assertIn(text, inspected.output)
        self.assertTrue(all(numpy.abs(values).max() > 0
                            for values in read_safetensors(trained).values()))
        plain, changed = self.clip(), self.clip(self.output / "lora")
        self.assertGreater(numpy.abs(changed - plain).max() / numpy.abs(plain).max(), 1e-3)
        numpy.testing.assert_array_equal(self.clip(f"{trained}:0"), plain)

        # A training of a model with this LoRA begins where the first one was after an epoch: the
        # next clip, with its random numbers, has the loss that the first training found.
        self.output = self.folder / "first"
        self.check_trained(train__steps=CLIPS, **one_epoch)
        first = lora_file(self.output)
        losses = {}
        for name, more in (("plain", {}), ("changed", {"model__lora": first})):
            self.output = self.folder / name
            self.check_trained(train__steps=1, train__seed=42 + CLIPS, **one_epoch, **more)
            losses[name] = values_of(self.output)[0]["loss"][0]
        self.assertLess(abs(losses["changed"] / next_loss - 1), 1e-4)
        self.assertGreater(abs(losses["plain"] / next_loss - 1), 1e-3)
        # Its LoRA has only what it has learned on top.
        both = self.clip(first, lora_file(self.folder / "changed"))
        self.assertFalse(numpy.array_equal(both, self.clip(first)))

    @only_long
    def test_layers_with_ranks_of_their_own(self):
        """A training that is killed goes on with the same bits on other ranks; its LoRA has the
        ranks and factors with which it was trained."""
        more = {"train__batch": 1, "train__warmup": 0, "train__caption_dropout": 0,
                "data__shuffle": "no", "train__steps": 8, "lora__targets": "to_q,to_k,ff.net.2",
                "lora__rank_pattern": "transformer_blocks.0.attn1.to_k=7,to_k=2,ff.net.2=9",
                "lora__alpha_pattern": "ff.net.2=4.5,attn1.to_q=1"}
        self.check_trained(output__path=self.folder / "expected", **more)
        expected = values_of(self.folder / "expected")
        self.disturb(3, lambda job, ranks: os.kill(ranks[1], signal.SIGKILL),
                     self.options(train__save_every=1, parallel__replicas=1, **more),
                     lambda: self.saved_step() >= 3)
        self.assertLess(self.saved_step(), 8)
        saved = self.output / "restart" / "training.h5"
        self.check_refused(65, f"{saved}: is of another training: found lora.rank-pattern ",
                           "to_k=7+to_k=2+ff.net.2=9, expected lora.rank-pattern to_k=2+ff.net.2=9",
                           output__if_exists="resume",
                           **more | {"lora__rank_pattern": "to_k=2,ff.net.2=9"})
        self.check_trained(2, output__if_exists="resume", **more)
        self.check_same(self.output, expected)
        trained = lora_file(self.output)
        inspected = execute([PROGRAM, "inspect", trained])
        self.assertEqual(inspected.status, 0, inspected)
        for text in ("18 modules: ", "rank 2 (5), 4 (6), 7 (1), 9 (6)", "lora_adapter_metadata",
                     "factor, alpha / rank: 0.25 (6), 0.5 (6), 0.571429 (1), 2 (5)"):
            self.assertIn(text, inspected.output)

        # The next clip, with its random numbers, has the loss that the training would have found.
        loss = expected[0]["loss"]
        self.output = self.folder / "short"
        self.check_trained(**more | {"train__steps": 5})
        begun, losses = lora_file(self.output), {}
        for name, start in (("plain", {}), ("changed", {"model__lora": begun}),
                            ("goes on from kohya's names", {"lora__init": self.as_kohya(begun)}),
                            ("goes on", {"lora__init": begun})):
            self.output = self.folder / name
            self.check_trained(2, **more | start | {
                "train__steps": 1, "train__seed": 42 + 5, "train__learning_rate": 0,
                "data__path": self.from_clip(5)})
            losses[name] = values_of(self.output)[0]["loss"][0]
        self.assertEqual(losses["goes on"], loss[5])
        self.assertEqual(losses["goes on from kohya's names"], loss[5])
        self.assertLess(abs(losses["changed"] / loss[5] - 1), 1e-4)
        self.assertGreater(abs(losses["plain"] / loss[5] - 1), 1e-3)
        for name, values in read_safetensors(begun).items():
            numpy.testing.assert_array_equal(read_safetensors(lora_file(self.output))[name], values)
        clips = [self.clip(trained), self.clip(trained, ranks=3), self.clip()]
        numpy.testing.assert_array_equal(clips[0], clips[1])
        self.assertFalse(numpy.array_equal(clips[0], clips[2]))

        self.output = self.folder / "refused"
        self.check_refused(65, f"{begun}: module 'transformer_blocks.0.attn1.to_k' has rank 7, "
                           "expected 2, as lora.rank and lora.rank-pattern say", lora__init=begun,
                           **more | {"lora__rank_pattern": "to_k=2,ff.net.2=9"})
        for option in ("rank", "alpha"):
            self.check_refused(64, f"lora.{option}-pattern: found 'to_v', which names no layer "
                               "that is trained", "transformer_blocks.0.attn1.to_q, to_q", ranks=2,
                               **more | {f"lora__{option}_pattern": "to_q=2,to_v=9"})
        planned = self.planned(self.options(**more), "--ranks", 2)
        self.assertEqual(planned["training"]["lora_rank_pattern"],
                         "transformer_blocks.0.attn1.to_k=7,to_k=2,ff.net.2=9")

    @only_long
    def test_all_weights(self):
        """A training of all weights that is killed goes on with the same bits on other ranks, and
        its transformer is a checkpoint."""
        full = {"train__method": "full", "train__learning_rate": 1e-4}
        averaged = full | {"train__ema": 0.9}
        self.check_trained(output__path=self.folder / "expected", **averaged)
        expected = self.rows_and_weights(self.folder / "expected")
        self.disturb(2, lambda job, ranks: os.kill(ranks[1], signal.SIGKILL),
                     self.options(train__save_every=3, parallel__replicas=1, **averaged),
                     lambda: self.saved_step() >= 6)
        self.assertLess(self.saved_step(), STEPS)
        self.check_trained(3, output__if_exists="resume", parallel__weights="sharded", **averaged)
        self.check_same_weights(self.output, expected)
        self.assertEqual((self.output / "transformer" / "config.json").read_bytes(),
                         (MODEL / "transformer" / "config.json").read_bytes())
        self.assertFalse((self.output / "lora").exists())

        transformer = self.output / "transformer"
        trained = read_safetensors(transformer / "diffusion_pytorch_model.safetensors")
        start = read_safetensors(MODEL / "transformer" / "diffusion_pytorch_model.safetensors")
        self.assertEqual({name: values.shape for name, values in trained.items()},
                         {name: values.shape for name, values in start.items()})
        for name, values in trained.items():
            self.assertFalse(numpy.array_equal(values, start[name]), f"{name} has not changed")
        changed = self.clip(**{"model.transformer": transformer})
        self.assertTrue(numpy.isfinite(changed).all())
        self.assertFalse(numpy.array_equal(changed, self.clip()))

        # The next clip, with its random numbers, has the loss that the training would have found.
        more = {"train__batch": 1, "train__warmup": 0, "data__shuffle": "no",
                "train__caption_dropout": 0} | full
        self.output = self.folder / "longer"
        self.check_trained(train__steps=4, **more)
        loss = values_of_rows(self.output)["loss"][3]
        self.output = self.folder / "short"
        self.check_trained(train__steps=3, **more)
        begun = self.output / "transformer"
        self.output = self.folder / "again"
        self.check_trained(model__transformer=begun, train__steps=1, train__seed=42 + 3,
                           data__path=self.from_clip(3), **more)
        self.assertLess(abs(values_of_rows(self.output)["loss"][0] / loss - 1), 1e-5)

    def from_clip(self, first):
        """A list of the clips that begins with another one."""
        path = self.folder / "from.csv"
        names = [f"{(first + i) % CLIPS:03}.mkv" for i in range(CLIPS)]
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([("video", "prompt")] + [
                (self.clips / name, self.captions[int(name[:3])]) for name in names])
        return path

    def as_kohya(self, lora):
        """A LoRA with the names of kohya's scripts, and alphas in tensors."""
        header, data = read_header(lora)
        settings = json.loads(header.pop("__metadata__")["lora_adapter_metadata"])
        tensors = {}
        for name, entry in header.items():
            module, part, _ = name.removeprefix("transformer.").rsplit(".", 2)
            key = "lora_unet_" + module.replace(".", "_")
            tensors[f"{key}.{'lora_down' if part == 'lora_A' else 'lora_up'}.weight"] = entry
            if part == "lora_A":
                alpha = settings["transformer.alpha_pattern"].get(
                    module, settings["transformer.lora_alpha"])
                tensors[f"{key}.alpha"] = {"dtype": "F32", "shape": [],
                                           "data_offsets": [len(data), len(data) + 4]}
                data += numpy.float32(alpha).tobytes()
        path = self.folder / "kohya.safetensors"
        write_header(path, tensors, data)
        return path

    def test_what_all_weights_do_not_take(self):
        full = {"train__method": "full", "train__steps": 1}
        self.check_refused(64, "parallel.weights: found host", "train.method = full",
                           parallel__weights="host", **full)
        self.check_refused(64, "train.method: found 'all'", "lora, full", train__method="all")
        self.check_refused(64, "lora.init: found ", "train.method = lora", lora__init=self.folder, **full)
        self.check_refused(64, "lora.dropout: found 0.1", "train.method = lora", lora__dropout=0.1, **full)
        self.assertEqual(list(self.output.glob("*")), [])


class ImageTest(Training):
    """A model that makes videos from images: the image of a clip is its first frame."""

    def options(self, **more):
        return super().options(**IMAGE_MODEL | {"train__steps": 12, "train__image_dropout": 0.3} |
                               more)

    def check_interrupted(self, values, check, **more):
        """A training that is killed goes on with the same bits on other ranks."""
        more = {"train__validate_every": 6} | more
        self.check_trained(output__path=self.folder / "expected", **more)
        expected = values(self.folder / "expected")
        self.assertTrue(numpy.isfinite(expected[0]["loss"]).all())
        self.own_cache = True  # samples of several ranks have the bits of one
        self.disturb(2, lambda job, ranks: os.kill(ranks[1], signal.SIGKILL),
                     self.options(train__save_every=2, **more), lambda: self.saved_step() >= 4)
        self.assertLess(self.saved_step(), 12)
        self.check_trained(3, output__if_exists="resume", parallel__replicas=1, **more)
        check(self.output, expected)

    def test_lora(self):
        self.check_interrupted(values_of, self.check_same)
        frame = subprocess.run(["ffmpeg", "-v", "error", "-i", self.clips / "002.mkv", "-frames:v",
                                "1", "-pix_fmt", "rgb24", "-f", "rawvideo", "-"],
                               capture_output=True, check=True).stdout
        stored = self.sample(2, "first_frame")
        self.assertEqual(stored.shape, (64, 64, 3))
        self.assertEqual(stored.astype(numpy.uint8).tobytes(), frame)

    @only_long
    def test_all_weights(self):
        self.check_interrupted(self.rows_and_weights, self.check_same_weights,
                               train__method="full", train__learning_rate=1e-4)
        start, end = (read_safetensors(folder / "transformer" /
                                       "diffusion_pytorch_model.safetensors")
                      for folder in (IMAGE_MODEL["model__path"], self.output))
        self.assertEqual(set(start), set(end))
        for name, values in end.items():
            self.assertFalse(numpy.array_equal(values, start[name]), f"{name} has not changed")

    def test_clips_are_made_from_images(self):
        prompts = self.folder / "prompts.jsonl"
        picture = SOURCE / "inputs" / "demo_picture.png"
        prompts.write_text(f'{{"prompt": "it grows", "image": "{picture}"}}\n')
        made = {"train__steps": 2, "train__sample_every": 2, "train__sample_steps": 2}
        self.check_trained(2, train__sample_prompts=prompts, **made)
        before, after = (read_clip(self.output / "samples" / f"step-00000{step}")["latents"]
                         for step in (0, 2))
        self.assertFalse(numpy.array_equal(before, after))


class PatternTest(Training):
    """A test of a training with a few clips of patterns that move."""

    @classmethod
    def setUpClass(cls):
        cls.clips = pattern_clips()


class OpenSoraTest(PatternTest):
    """Open-Sora at the lengths at which its own trainer fails: frames that ranks cannot divide."""

    def options(self, **more):
        return super().options(**{
            "train__method": "full", "train__steps": 6, "train__learning_rate": 1e-3,
            "train__caption_dropout": 0.4, "train__validate_every": 3, "data__height": 48,
            "data__width": 80} | more)

    def check_lengths(self, kind, ranks, **more):
        model = {"model__path": OPEN_SORA / kind, "parallel__replicas": 1} | more
        self.check_trained(output__path=self.folder / "alone", **model)
        expected = self.rows_and_weights(self.folder / "alone")
        losses = expected[0]["validation_loss"].mean(axis=1)
        self.assertLess(losses[-1], losses[0])
        self.own_cache = True  # samples of several ranks have the bits of one
        self.disturb(ranks, lambda job, pids: os.kill(pids[1], signal.SIGKILL),
                     self.options(train__save_every=1, **model), lambda: self.saved_step() >= 2)
        self.check_trained(ranks, output__if_exists="resume", **model)
        self.check_same_weights(self.output, expected)
        start, end = (read_safetensors(folder / "transformer" /
                                       "diffusion_pytorch_model.safetensors")
                      for folder in (OPEN_SORA / kind, self.output))
        self.assertEqual({name: values.shape for name, values in end.items()},
                         {name: values.shape for name, values in start.items()})
        kept = {name for name in start if numpy.array_equal(start[name], end[name])}
        tables = {"pos_embed", "pos_embed_temporal", "rope.freqs"} & set(start)
        self.assertEqual(kept, tables | {"y_embedder.y_embedding"})
        self.make({"model.path": OPEN_SORA / kind, "output.path": self.folder / "clip",
                   "model.transformer": self.output / "transformer", "sample.steps": 2,
                   "sample.height": 48, "sample.width": 80, "prompt.text": "Test pattern",
                   "sample.frames": 17 if kind == "v1_2" else 16})
        self.assertTrue(numpy.isfinite(read_clip(self.folder / "clip")["latents"]).all())

    def test_16_frames_on_3_ranks(self):
        self.check_lengths("v1_0", 3, train__min_snr=5)

    @only_long
    def test_15_latent_frames_on_4_ranks(self):
        self.check_lengths("v1_2", 4, data__frames=51)


class WanTraining(PatternTest):
    """Wan, whose 3 heads and 3 rows of tokens ranks divide or not."""

    MODEL = {}

    def options(self, **more):
        return super().options(**{
            "train__steps": 6, "train__caption_dropout": 0.4, "train__validate_every": 3,
            "data__height": 48, "data__width": 80, "data__frames": 17} | more) | self.MODEL

    def clip(self, name, **more):
        output = self.folder / name
        self.make(self.MODEL | {"output.path": output, "prompt.text": "Test pattern",
                                "sample.steps": 3, "sample.height": 48, "sample.width": 80,
                                "sample.frames": 17} | more)
        return read_clip(output)["latents"]

    def merged(self, lora):
        """A transformer with the weights that a LoRA of rank and alpha 4 makes."""
        folder = self.folder / "merged"
        shutil.copytree(self.MODEL["model.path"] / "transformer", folder)
        file = folder / "diffusion_pytorch_model.safetensors"
        weights, header = read_safetensors(file), read_header(file)[0]
        changes = read_safetensors(lora)
        modules = {name.removesuffix(".lora_A.weight") for name in changes if ".lora_A." in name}
        for module in modules:
            name = module.removeprefix("transformer.") + ".weight"
            change = changes[f"{module}.lora_B.weight"] @ changes[f"{module}.lora_A.weight"]
            weights[name] = weights[name] + change
        in_order = sorted(weights, key=lambda name: header[name]["data_offsets"])
        write_header(file, header, b"".join(weights[name].tobytes() for name in in_order))
        return folder, modules

    def check_interrupted(self, values, check, **more):
        """A training that is killed goes on with the same bits on other ranks."""
        self.check_trained(output__path=self.folder / "alone", **more)
        expected = values(self.folder / "alone")
        losses = expected[0]["validation_loss"].mean(axis=1)
        self.assertLess(losses[-1], losses[0])
        self.own_cache = True  # samples of several ranks have the bits of one
        self.disturb(3, lambda job, pids: os.kill(pids[1], signal.SIGKILL),
                     self.options(train__save_every=1, parallel__replicas=1, **more),
                     lambda: self.saved_step() >= 2)
        self.check_trained(3, output__if_exists="resume", parallel__replicas=1, **more)
        check(self.output, expected)

    def check_all_changed(self):
        """All weights have changed."""
        start, end = (read_safetensors(folder / "transformer" /
                                       "diffusion_pytorch_model.safetensors")
                      for folder in (self.MODEL["model.path"], self.output))
        self.assertEqual({name: values.shape for name, values in end.items()},
                         {name: values.shape for name, values in start.items()})
        for name, values in end.items():
            self.assertFalse(numpy.array_equal(values, start[name]), f"{name} has not changed")


class WanTest(WanTraining):
    MODEL = {"model.path": WAN}

    def test_lora(self):
        self.check_interrupted(values_of, self.check_same, train__learning_rate=0.003,
                               train__timesteps="logit-normal", train__logit_std=0.5,
                               lora__targets="to_q,to_k,to_v,to_out.0,ffn.net.0.proj,ffn.net.2")
        folder, modules = self.merged(lora_file(self.output))
        self.assertEqual(len(modules), 2 * (4 + 4 + 2))
        self.assertIn("transformer.blocks.1.attn2.to_out.0", modules)
        plain = self.clip("plain")
        changed = self.clip("lora", **{"model.lora": self.output / "lora"})
        self.assertGreater(relative(changed, plain), 1e-3)
        self.assertLess(relative(changed, self.clip("whole", **{"model.transformer": folder})), 1e-5)

    def test_all_weights(self):
        self.check_interrupted(self.rows_and_weights, self.check_same_weights,
                               train__method="full", train__learning_rate=1e-3)
        self.check_all_changed()
        changed = self.clip("changed", **{"model.transformer": self.output / "transformer"})
        self.assertTrue(numpy.isfinite(changed).all())

    def test_the_shift_moves_noise_levels(self):
        """The same draws: timesteps follow the shift."""
        found = {}
        for shift in (1, 5, 7.5):
            self.output = self.folder / f"shift {shift}"
            more = {} if shift == 5 else {"train__flow_shift": shift}  # 5: that of the folder
            self.check_trained(train__validate_every=0, **more)
            with h5py.File(self.output / "metrics.h5") as file:
                found[shift] = file["timestep"][()].ravel()
        drawn = found[1] / 1000
        for shift in (5, 7.5):
            numpy.testing.assert_allclose(
                found[shift], 1000 * shift * drawn / (1 + (shift - 1) * drawn), atol=0.51)


class WanImageTest(WanTraining):
    """The image of a clip is its first frame, whose encodings are in the cache."""

    MODEL = WAN_IMAGE

    def image(self, number=0):
        return {"prompt.image": f"{self.clips / f'{number}.mkv'}@0"}

    def test_lora(self):
        self.check_interrupted(
            values_of, self.check_same, train__learning_rate=0.003,
            lora__targets="to_q,to_k,to_v,to_out.0,add_k_proj,add_v_proj,ffn.net.2")
        folder, modules = self.merged(lora_file(self.output))
        self.assertEqual(len(modules), 2 * (4 + 4 + 2 + 1))
        self.assertIn("transformer.blocks.1.attn2.add_v_proj", modules)
        plain = self.clip("plain", **self.image())
        changed = self.clip("lora", **self.image(), **{"model.lora": self.output / "lora"})
        self.assertGreater(relative(changed, plain), 1e-3)
        merged = self.clip("whole", **self.image(), **{"model.transformer": folder})
        self.assertLess(relative(changed, merged), 1e-5)

    @only_long
    def test_all_weights(self):
        self.check_interrupted(self.rows_and_weights, self.check_same_weights,
                               train__method="full", train__learning_rate=1e-3)
        self.check_all_changed()
        changed = self.clip("changed", **self.image(),
                            **{"model.transformer": self.output / "transformer"})
        self.assertTrue(numpy.isfinite(changed).all())

    def test_samples_have_what_run_makes_of_the_image(self):
        """On any ranks: latents and rows of the image encoder, as a clip's restart file has them.
        At the size of the videos, so that frames are not resized."""
        self.own_cache = True
        size = {"height": 112, "width": 96, "frames": 9}
        clip = self.MODEL | self.image(2) | {
            "output.path": self.output, "prompt.text": "Test pattern", "sample.steps": 60,
            "restart.every": 1} | {f"sample.{name}": value for name, value in size.items()}
        self.COMMAND = "run"
        self.disturb(2, lambda _, ranks: os.kill(ranks[1], signal.SIGKILL), clip)
        with h5py.File(self.output / "restart" / "000000.h5") as file:
            expected = {name: file[name][()] for name in ("image_latents", "image_rows")}
        self.assertGreater(abs(expected["image_latents"]).max(), 0)
        for ranks in (1, 2, 3, 5):
            self.output = self.folder / f"on {ranks}"
            self.check_trained(ranks, train__steps=1, train__validate_every=0, **{
                f"data__{name}": value for name, value in size.items()})
            for name, values in expected.items():
                numpy.testing.assert_array_equal(self.sample(2, name), values)
            with h5py.File(self.output / "job.h5") as file:
                self.assertEqual(set(file["samples/000002"]),
                                 {"latent_mean", "latent_std", "prompt_embeds", *expected})

    def test_clips_are_made_from_images(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text(json.dumps({"prompt": "It moves.", "image": f"{self.clips / '1.mkv'}@0"}))
        made = {"train__steps": 2, "train__sample_every": 2, "train__sample_steps": 2}
        self.check_refused(64, "train.sample-every", "train.sample-prompts", **made)
        self.check_trained(2, train__sample_prompts=prompts, train__learning_rate=0.03,
                           train__warmup=0, **made)
        before, after = (read_clip(self.output / "samples" / f"step-00000{step}")["latents"]
                         for step in (0, 2))
        self.assertFalse(numpy.array_equal(before, after))

    def test_what_cannot_be_trained(self):
        self.check_refused(64, "train.image-dropout: found 0.1, expected it only for",
                           train__image_dropout=0.1)
        for kind, said in (("ends", "between a first and a last image"),
                           ("experts_image", "has two transformers")):
            self.MODEL = WAN_IMAGE | {"model.path": WAN.parent / kind} | {
                f"model.{part}": WAN_IMAGE["model.path"] / part.replace("-", "_")
                for part in ("image-encoder", "image-processor") if kind == "ends"}
            self.check_refused(64, "model.path: ", said)
        self.assertEqual(list(self.output.glob("*")), [])


class WanFrameTest(WanTraining):
    """TI2V-5B, trained as it makes clips from texts: all tokens have one timestep."""

    MODEL = {"model.path": WAN.parent / "ti2v"} | {
        f"model.{part}": WAN / part.replace("-", "_") for part in ("text-encoder", "tokenizer")}

    def options(self, **more):
        return super().options(**{"data__height": 64, "data__width": 96, "data__frames": 9} | more)

    def test_lora(self):
        self.check_interrupted(values_of, self.check_same, train__learning_rate=0.003)
        size = {"sample.height": 64, "sample.width": 96, "sample.frames": 9}
        plain = self.clip("plain", **size)
        changed = self.clip("lora", **size, **{"model.lora": self.output / "lora"})
        self.assertGreater(relative(changed, plain), 1e-3)
        self.check_refused(64, "data.height", "multiple of 32", data__height=48)


if __name__ == "__main__":
    main()

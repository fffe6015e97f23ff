"""Ranks that have less memory than was planned while a job runs: on CPUs the limit of their cgroup is
lowered (support/memory_limit.c), on emulated GPUs another process takes memory. All ranks plan again
and go on with the same bits; or the job ends with status 69, saved, and goes on later."""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import h5py

from support import (BACKEND, DATA, ERROR, LONG, PROGRAM, WARNING, Scratch, command_of, execute,
                     finish, main, programs_of, read_clip, run, send, start)

SOURCE = DATA.parents[2]
MIB = 1 << 20
RANKS, CLIPS, STEPS = 2, 1 if BACKEND else 3, 4
LACKING, STOPPED = 69, 75
ALL = 16 << 30  # bytes of an emulated GPU
# Bytes of a rank on CPUs with which weights do not fit beside each other, but do if they stay in
# their files; 56 MiB are for the program.
ENOUGH_FOR_CLIPS = 62 * MIB


class Short(Scratch):
    """Jobs of a model of many thin layers, whose weights take most of the memory."""

    text_layers = 280

    @classmethod
    def setUpClass(cls):
        if not BACKEND and "SwapTotal:" in (info := pathlib.Path("/proc/meminfo").read_text()) and (
                int(info.split("SwapTotal:")[1].split()[0])):
            raise unittest.SkipTest("the machine has swap, which a limit of memory does not count")
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="reelmesh_memory_"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.model = cls.shared / "model"
        made = execute([PROGRAM, "make-model", "tiny-cogvideox-rotary", cls.model, "--layers", 30,
                        "--text-layers", cls.text_layers, "--no-sync"])
        assert made.status == 0, made
        cls.library = cls.shared / "memory_limit.so"
        source = SOURCE / "tests" / "support" / "memory_limit.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", cls.library, source, "-ldl"], check=True)

    def setUp(self):
        super().setUp()
        self.output = self.folder / "output"

    def options(self, output, **more):
        return {"model.path": self.model, "prompt.text": [f"fox {i}" for i in range(CLIPS)],
                "sample.frames": 8, "sample.height": 32, "sample.width": 32, "sample.steps": STEPS,
                "output.path": output, "device.timeout": "60s"} | (
                    # Emulated GPUs are slow.
                    {"sample.frames": 1, "sample.height": 16, "sample.width": 16, "sample.steps": 2}
                    if BACKEND else {}) | {
                    key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}

    def short_of_memory(self, left, times):
        """The environment of a job: from the times-th look at the memory on, each rank has so many
        bytes left."""
        if BACKEND:
            return {"REELMESH_EMULATED_GPU_TAKEN": f"{ALL - left}:{2 * times}"}
        limit = self.folder / "limit"
        limit.write_text(f"{RANKS * left}\n")
        return {"LD_PRELOAD": str(self.library), "MEMORY_LIMIT": str(limit),
                "MEMORY_LIMIT_FROM": str(1 + 2 * times)}

    environment = {"REELMESH_EMULATED_GPUS": str(RANKS)} if BACKEND else {}

    def check_planned_again(self, outcome):
        """One line for each new plan, in the log and in job.h5. Returns them."""
        self.assertEqual(outcome.status, 0, outcome)
        with h5py.File(self.output / "job.h5") as file:
            lines = list(file.attrs["planned_again"])
        said = [line for line in outcome.lines(WARNING) if "planned again" in line]
        self.assertEqual(said, [WARNING + line for line in lines], outcome)
        self.assertEqual(outcome.lines(ERROR), [], outcome)
        for line in lines:
            self.assertRegex(line, r"^rank \d needs .* while it .*, found room for .*; planned "
                                   r"again: .* weights.* instead of .* weights")
        return lines


class MemoryTest(Short):
    expected = None

    def clips(self, output):
        names = ("latents", "video")
        clips = [read_clip(output, index) for index in range(CLIPS)]
        return [clip[name].tobytes() for clip in clips for name in names]

    def undisturbed(self):
        if MemoryTest.expected is None:
            output = self.make(self.options(self.folder / "undisturbed"))
            with h5py.File(output / "job.h5") as file:
                self.assertNotIn("planned_again", file.attrs)
            MemoryTest.expected = self.clips(output)
        return MemoryTest.expected

    @unittest.skipIf(BACKEND, "the tiny model's weights are less than the libraries' workspace")
    def test_a_new_plan_in_each_stage(self):
        expected, stages = self.undisturbed(), set()
        for times in range(1, 16) if LONG else (1, 2, 5, 7):
            with self.subTest(times=times):
                shutil.rmtree(self.output, ignore_errors=True)
                outcome = run(self.options(self.output), RANKS,
                              self.environment | self.short_of_memory(ENOUGH_FOR_CLIPS, times))
                lines = self.check_planned_again(outcome)
                self.assertEqual(len(lines), 1, lines)
                stages |= {line.split(" while it ")[1].split(",")[0] for line in lines}
                self.assertEqual(self.clips(self.output), expected)
                self.assertFalse((self.output / "restart").exists())
        self.assertEqual(stages, {"encodes prompts", "denoises", "decodes"})

    def test_no_layout_fits(self):
        """The job ends with what it has made saved, and goes on when the memory is there again."""
        expected = self.undisturbed()
        # GPUs have enough for all but decoding.
        for left, times in ((300 * MIB, 4),) if BACKEND else ((MIB // 8, 1), (MIB // 8, 5)):
            with self.subTest(times=times):
                shutil.rmtree(self.output, ignore_errors=True)
                outcome = run(self.options(self.output), RANKS,
                              self.environment | self.short_of_memory(left, times))
                self.assertEqual(outcome.status, LACKING, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertRegex(outcome.lines(ERROR)[0],
                                 r"rank \d: needs .*; no layout fits what there is: .*; what is done "
                                 "is saved; run again with --output.if-exists resume")
                self.assertEqual(bool(list((self.output / "restart").glob("0*.h5"))), times > 1)
                outcome = run(self.options(self.output, output__if_exists="resume"), RANKS,
                              self.environment)
                self.assertEqual(outcome.status, 0, outcome)
                self.assertEqual(self.clips(self.output), expected)

    def test_status_has_the_memory_of_each_rank(self):
        # status.json is written every 2 s: the job goes on until it has been read, and has been
        # written after the log has a line.
        began = time.monotonic()
        job = start(command_of(self.options(self.output, sample__steps=1000), RANKS),
                    self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        found, written = [], set()
        while (len(found) < RANKS or len(written) < 3) and job.poll() is None:
            time.sleep(0.05)
            try:
                status = json.loads((self.output / "status.json").read_text())
            except (OSError, ValueError):
                continue
            written.add(status["updated"])
            # On a GPU 0 until something is loaded.
            found = [rank["memory"] for rank in status["ranks"]
                     if rank.get("memory", {}).get("used", 0) > 0]
        self.assertIsNone(job.poll(), "ended before status.json had the memory")
        send(signal.SIGTERM, programs_of(job.pid, RANKS)[-1:])
        outcome = finish(job, began, 300)
        self.assertEqual(outcome.status, STOPPED, outcome)
        self.assertRegex(outcome.errors, r"(?m)^0 of \d clips?(, \d+ of \d+ steps .*)?(, \w+ing.*)?$")
        self.assertEqual(len(found), RANKS)
        for memory in found:
            self.assertEqual(set(memory), {"used", "limit", "others"})
            self.assertGreater(memory["used"], 0 if BACKEND else 20 * MIB)
            self.assertGreater(memory["limit"], memory["used"])
            self.assertGreaterEqual(memory["others"], 0)


@unittest.skipIf(BACKEND, "the tiny model's weights are less than the libraries' workspace")
class TrainingMemoryTest(Short):
    # T5 must not fit into the memory that denoising needs with weights on the host, which is 6 MiB
    # more with AVX-512 than with AVX2.
    text_layers = 400

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.clips = cls.shared / "clips"
        subprocess.run([SOURCE / "tools" / "make_training_clips", cls.clips, "--count", "2"],
                       check=True, capture_output=True)

    def training_options(self, output):
        return {"model.path": self.model, "data.path": self.clips, "data.frames": 8,
                "data.height": 32, "data.width": 32, "train.steps": STEPS, "train.batch": 2,
                "lora.rank": 4, "output.path": output, "device.timeout": "60s",
                "output.if-exists": "replace"}

    def training(self, output, environment):
        return run(self.training_options(output), RANKS, self.environment | environment,
                   name="train")

    def enough(self):
        """Bytes of a rank, which depend on the processor."""
        options = self.training_options(self.output) | {"parallel.weights": "host"}
        memory = [rank["memory"] for rank in self.planned(options, "--ranks", RANKS)["by_rank"]]
        return max(size for one in memory for size in one.values() if isinstance(size, int)) + MIB

    def test_a_new_plan(self):
        undisturbed = self.folder / "undisturbed"
        outcome = self.training(undisturbed, {})
        self.assertEqual(outcome.status, 0, outcome)
        lora = pathlib.Path("lora") / "pytorch_lora_weights.safetensors"
        stages, enough = set(), self.enough()
        for times in range(1, 5) if LONG else (1, 4):
            with self.subTest(times=times):
                outcome = self.training(self.output,
                                        self.short_of_memory(enough, times))
                lines = self.check_planned_again(outcome)
                self.assertEqual(len(lines), 1, outcome)
                stages |= {line.split(" while it ")[1].split(",")[0] for line in lines}
                self.assertEqual((self.output / lora).read_bytes(),
                                 (undisturbed / lora).read_bytes())
                with h5py.File(self.output / "metrics.h5") as file, \
                        h5py.File(undisturbed / "metrics.h5") as other:
                    self.assertEqual(file["loss"][()].tobytes(), other["loss"][()].tobytes())
        self.assertEqual(stages, {"encodes prompts", "denoises"})


if __name__ == "__main__":
    main()

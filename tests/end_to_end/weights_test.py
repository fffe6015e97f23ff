"""Weights that are gathered from other ranks or fetched from the host: memory, restarts, and what
happens when a rank, a file or memory fails meanwhile. That no bit changes is tested by
tests/pipeline/layouts."""

import os
import re
import shutil
import signal
import subprocess
import time

import h5py

from support import (BACKEND, ERROR, PROGRAM, Reference, Scratch, command_of, execute, finish,
                     left_behind, main, programs_of, read_clip, result_files, run, start)
from tables import table

DATA, STOPPED = 65, 75
STEPS = 40 if BACKEND else 200  # so many that a signal comes before the last one


class WeightsTest(Scratch):
    def setUp(self):
        super().setUp()
        self.output = self.folder / "output"
        self.reference = Reference("rotary")

    def options(self, **more):
        options = self.reference.options(self.output, **more)
        return {"prompt.text": "A red fox runs."} | options

    def memory(self, output):
        """Purpose -> bytes at the peak of that purpose, on the rank with the most."""
        with h5py.File(output / "trace.h5") as file:
            memory = table(file, "memory")
        found = {}
        for row in memory:
            if row["place"] == (b"device" if BACKEND else b"host"):
                purpose = row["purpose"].decode()
                found[purpose] = max(found.get(purpose, 0), int(row["peak_bytes"]))
        return found

    def start_denoising(self, options, ranks):
        """A job of many steps, in the midst of them; and the processes of its ranks."""
        began = time.monotonic()
        job = start(command_of(options, ranks), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = ""
        while "largest share" not in said:
            line = job.stderr.readline()
            self.assertTrue(line, said)
            said += line
        time.sleep(1)
        return job, programs_of(job.pid, ranks), began

    def check_one_error(self, outcome, text):
        errors = outcome.lines(ERROR)
        self.assertEqual(len(errors), 1, outcome)
        self.assertIn(text, errors[0])
        self.assertEqual(result_files(self.output), [])

    def test_foreseen_and_measured(self):
        model = self.folder / "model"
        made = execute([PROGRAM, "make-model", "cogvideox-2b", model, "--layers", 1,
                        "--text-layers", 1])
        self.assertEqual(made.status, 0, made)
        common = {"model.path": model, "prompt.text": "a", "sample.frames": 8,
                  "sample.height": 48, "sample.width": 64, "sample.steps": 1,
                  "output.video": "no", "numerics.dtype": "bfloat16", "parallel.replicas": 1}
        kept, clips = {}, {}
        for weights in ("replicated", "sharded", "host"):
            output = self.folder / weights
            options = common | {"output.path": output, "parallel.weights": weights,
                                "parallel.text-weights": "host"}
            planned = self.planned({**common, "parallel.weights": weights,
                                    "parallel.text-weights": "host"}, "--ranks", 4)
            outcome = run(options, 4)
            self.assertEqual(outcome.status, 0, outcome)
            said = re.search(r"([0-9.]+) (MiB|GiB) of weights fetched",
                             outcome.errors + outcome.output)
            self.assertTrue(said, outcome)
            fetched = float(said[1]) * {"MiB": 2**20, "GiB": 2**30}[said[2]]
            if weights == "replicated":  # the layers of the text encoder, for each prompt
                of_text = fetched
            else:
                expected = 4 * planned["weights"]["step_fetched"]
                self.assertLess(abs(fetched - of_text - expected), 0.03 * expected + (10 << 20))
            # The transformer is loaded last, so that its weights are the peak. The embedding of the
            # text encoder is larger than a share.
            memory = self.memory(output)
            foreseen = max(max(rank["memory"]["parts"][part]["weights"]
                               for rank in planned["by_rank"]) for part in ("text", "denoise"))
            self.assertLess(abs(memory["weights"] - foreseen), 0.05 * foreseen + (17 << 20),
                            weights)
            self.assertLessEqual(memory.get("exchange", 0) - planned["weights"]["window"], 8 << 20)
            kept[weights] = planned["weights"]["kept"]
            clips[weights] = read_clip(output)
        self.assertLess(kept["sharded"], 0.26 * kept["replicated"])
        self.assertEqual(kept["host"], 0)
        for weights in ("sharded", "host"):
            self.assertEqual(clips[weights]["latents"].tobytes(),
                             clips["replicated"]["latents"].tobytes(), weights)

    def test_goes_on_with_other_weights(self):
        expected = read_clip(self.make(self.options(sample__steps=STEPS) |
                                       {"output.path": self.folder / "expected"}))
        options = self.options(sample__steps=STEPS, restart__every=1)
        began = time.monotonic()
        job = start(command_of(options | {"parallel.weights": "sharded"}, 3),
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not list(self.output.glob("restart/0*")):
            self.assertIsNone(job.poll(), "the job has ended already")
            time.sleep(0.01)
        job.send_signal(signal.SIGUSR1)
        outcome = finish(job, began, 60)
        self.assertEqual(outcome.status, STOPPED, outcome)
        self.make(options | {"parallel.weights": "host", "output.if-exists": "resume"}, 2)
        self.assertEqual(read_clip(self.output)["latents"].tobytes(),
                         expected["latents"].tobytes())

    def test_a_rank_dies_while_weights_are_gathered(self):
        options = self.options(sample__steps=1000, parallel__weights="sharded")
        job, ranks, began = self.start_denoising(options, 3)
        with job:
            os.kill(ranks[1], signal.SIGKILL)
            outcome = finish(job, began, 60)
        self.assertNotEqual(outcome.status, 0, outcome)
        self.assertEqual(result_files(self.output), [])
        self.assertEqual(left_behind(ranks), [])

    def test_a_file_changes_while_weights_are_fetched(self):
        """With other weights under the fingerprint of the first ones, a later resume would keep the
        clip, or go on with its steps."""
        def truncate(path):
            os.truncate(path, path.stat().st_size // 2)

        def change_a_byte(path):
            state = path.stat()
            with open(path, "r+b") as file:
                file.seek(-100, os.SEEK_END)
                byte = file.read(1)[0]
                file.seek(-100, os.SEEK_END)
                file.write(bytes([byte ^ 1]))
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))

        for change in (truncate, change_a_byte):
            with self.subTest(change.__name__):
                model = self.folder / change.__name__
                shutil.copytree(self.reference.model, model)
                shutil.rmtree(self.output, ignore_errors=True)
                options = self.options(sample__steps=1000,
                                       parallel__weights="host") | {"model.path": model}
                job, _, began = self.start_denoising(options, 2)
                with job:
                    for path in (model / "transformer").glob("*.safetensors"):
                        change(path)
                    outcome = finish(job, began, 60)
                self.assertEqual(outcome.status, DATA, outcome)
                self.check_one_error(outcome, "diffusion_pytorch_model")
                self.assertIn("changed or replaced", outcome.errors)

    def test_host_memory_of_gpus_leaves_nothing_behind(self):
        if not BACKEND:
            self.skipTest("on a CPU weights stay in the file")
        expected = read_clip(self.make(self.options(sample__steps=4) |
                                       {"output.path": self.folder / "expected"}))
        before = set(os.listdir("/dev/shm"))
        self.make(self.options(sample__steps=4, parallel__weights="host",
                               parallel__replicas=1), 3,
                  {"REELMESH_EMULATED_GPUS": "3", "REELMESH_EMULATED_GPU_DELAY": "100"})
        self.assertEqual(read_clip(self.output)["latents"].tobytes(),
                         expected["latents"].tobytes())
        left = {name for name in set(os.listdir("/dev/shm")) - before if "reelmesh" in name}
        self.assertEqual(left, set())


if __name__ == "__main__":
    main()

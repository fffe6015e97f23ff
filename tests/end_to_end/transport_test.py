"""Several ranks with real or emulated GPUs (REELMESH_BACKEND=cuda): every transport gives the bits
of one rank, and a job ends if messages fail or never arrive."""

import json
import sys

import numpy

from support import (BACKEND, DATA, ERROR, LONG, Reference, Scratch, command_of, execute,
                     launch, main, read_clip, run)

# Random delays of work expose missing synchronization.
GPUS = {"REELMESH_EMULATED_GPUS": "8", "REELMESH_EMULATED_GPU_DELAY": "100"}
SHARED = {"REELMESH_EMULATED_GPUS": "1"}
BY = "messages between GPUs use "
SOURCE = DATA.parents[2]
TIMEOUT = 4  # seconds, device.timeout of jobs whose messages never arrive


class Transport(Scratch):
    def setUp(self):
        super().setUp()
        self.reference = Reference("rotary")

    def options(self, name, **more):
        return self.reference.options(self.folder / name, sample__steps=2, prompt__text="a fox",
                                      **{"output__video": "no"} | more)

    def test_bits_of_one_rank(self):
        one = read_clip(self.make(self.options("one", output__video="yes"), 1, GPUS))
        video = {"output__video": "yes"}
        ways = [
            ("mpi", 3, GPUS, {"device__transport": "mpi"}, "mpi"),
            ("shared", 3, SHARED, {}, "mpi"),
            ("shared_nccl", 2, SHARED | {"NCCL_MULTI_RANK_GPU_ENABLE": "1"},
             {"device__transport": "nccl"}, "nccl"),
            ("split", 5, GPUS, {"parallel__mode": "split", "parallel__text": 2} | video, "nccl"),
        ]
        if LONG:
            ways += [("nccl", 2, GPUS, video, "nccl"),
                     ("cfg", 4, GPUS, {"parallel__cfg": 2, "parallel__mode": "phased"}, "nccl")]
        for name, ranks, environment, more, way in ways:
            with self.subTest(name):
                options = self.options(name, **more)
                outcome = run(options, ranks, environment, timeout=120)
                self.assertEqual(outcome.status, 0, outcome)
                self.assertIn(BY + way, outcome.errors)
                clip = read_clip(options["output.path"])
                for dataset in ("latents", "video") if "output__video" in more else ("latents",):
                    self.assertTrue(numpy.array_equal(clip[dataset], one[dataset]), dataset)

    def ends(self, environment, status, *texts, **more):
        outcome = run(self.options("failing", **more), 3, environment, timeout=60)
        self.assertEqual(outcome.status, status, outcome)
        self.assertNotEqual(outcome.lines(ERROR), [], outcome)
        for text in texts:
            self.assertIn(text, outcome.lines(ERROR)[0])

    def test_error_of_nccl_ends_the_job(self):
        for group in (1, 8):
            self.ends(GPUS | {"REELMESH_EMULATED_NCCL_FAIL": f"1:{group}"}, 70,
                      "NCCL of rank 1 on cuda:1", f"group {group} was made to fail")

    def test_error_of_the_first_contact_ends_the_job(self):
        self.ends(GPUS | {"REELMESH_EMULATED_NCCL_FAIL": "1:connect"}, 70,
                  "NCCL of rank 1 on cuda:1: first messages of ranks: unhandled system error; "
                  "connecting was made to fail")

    def test_ranks_that_do_not_reach_each_other_end_the_job(self):
        for where in ("connect", "1"):  # hangs on the host, on the device
            with self.subTest(where):
                self.ends(GPUS | {"REELMESH_EMULATED_NCCL_HANG": f"2:{where}"}, 76, "NCCL of rank",
                          f"NCCL could not connect all ranks within {TIMEOUT} s (device.timeout)",
                          "NCCL_SOCKET_IFNAME", device__timeout=f"{TIMEOUT}s")

    def test_messages_that_never_come_end_the_job(self):
        self.ends(GPUS | {"REELMESH_EMULATED_NCCL_HANG": "2:5"}, 76, "NCCL of rank",
                  "device.timeout", device__timeout=f"{TIMEOUT}s")

    def counts(self, options, name="run"):
        """Communicators, connections (ways of pairs) and bytes of each rank of a job on 3 ranks."""
        file = self.folder / "counts"
        file.unlink(missing_ok=True)
        outcome = run(options, 3, GPUS | {"REELMESH_EMULATED_NCCL_COUNTS": file}, timeout=120,
                      name=name)
        self.assertEqual(outcome.status, 0, outcome)
        return sorted(tuple(int(word) for word in line.split()[1::2])
                      for line in file.read_text().splitlines())

    # Neither steps, nor clips, nor how often weights are loaded change the number of communicators.

    def test_communicators_of_a_job_are_made_once(self):
        prompts = self.folder / "prompts.txt"
        prompts.write_text("a fox\na bear\na heron\n")
        more = {"parallel__weights": "sharded", "output__video": "yes",
                "parallel__mode": "phased", "parallel__replicas": 1}
        once = self.counts(self.options("once", **more))
        self.assertEqual([rank[:2] for rank in once], 3 * [(2, 8)])
        several = self.options("several", sample__steps=4, parallel__decode_weights="host", **more)
        del several["prompt.text"]
        self.assertEqual(self.counts(several | {"prompt.file": prompts}), once)

    def test_communicators_of_a_training_are_made_once(self):
        clips = self.folder / "clips"
        made = execute([sys.executable, SOURCE / "tools" / "make_training_clips", clips,
                        "--count", 2, "--prompts", 1])
        if made.status == 69:
            self.skipTest(made.errors.strip())
        for steps in (1, 3):
            found = self.counts({
                "model.path": SOURCE / "inputs" / "demo_model", "data.path": clips, "output.path": self.folder / str(steps),
                "train.method": "full", "train.steps": steps, "train.batch": 1,
                "parallel.weights": "sharded", "parallel.replicas": 1}, "train")
            self.assertEqual([rank[:2] for rank in found], 3 * [(2, 8)])

    def test_the_plan_knows_the_memory_of_communicators(self):
        for weights in ("replicated", "sharded"):
            with self.subTest(weights):
                options = self.options(weights, parallel__mode="phased", parallel__replicas=1,
                                       parallel__weights=weights)
                found = self.counts(options)
                del options["output.path"]
                outcome = self.plan({"device.backend": BACKEND} | options, "--ranks", 3, "--json")
                self.assertEqual(outcome.status, 0, outcome)
                ranks = json.loads(outcome.output)["memory"]["by_rank"]
                planned = sorted(rank["memory"]["parts"]["connections"] for rank in ranks)
                self.assertEqual(planned, [rank[2] for rank in found])

    def test_a_rank_may_take_longer_to_load_than_the_others_wait(self):
        # Each piece of work on the slow GPU is delayed by 12 ms on average; loading the transformer
        # takes many times as long as computing a layer.
        options = self.options("slow", device__timeout="3s", parallel__mode="phased",
                               parallel__cfg=1)
        words = command_of(options | {"sample.steps": 1})
        slow = ["env", "REELMESH_EMULATED_GPU_DELAY=25000", *words]
        outcome = execute(launch(words, slow), {"REELMESH_EMULATED_GPUS": "2"}, timeout=120)
        self.assertEqual(outcome.status, 0, outcome)

    def test_nccl_for_ranks_that_share_a_gpu_is_refused(self):
        self.ends(SHARED, 69, "device.transport is nccl, but ranks 0 and 1 share the GPU",
                  device__transport="nccl")


if __name__ == "__main__":
    main()

"""Several ranks with real or emulated GPUs (REELMESH_BACKEND=cuda): every transport gives the bits
of one rank, and a job ends if messages fail or never arrive."""

import numpy

from support import (ERROR, LONG, MPIRUN, Reference, Scratch, command_of, execute, main,
                     read_clip, run)

# Random delays of work expose missing synchronization.
GPUS = {"REELMESH_EMULATED_GPUS": "8", "REELMESH_EMULATED_GPU_DELAY": "100"}
SHARED = {"REELMESH_EMULATED_GPUS": "1"}
BY = "messages between GPUs use "
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
                  "NCCL of rank 1 on cuda:1: first messages of all ranks: unhandled system error; "
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

    def test_a_rank_may_take_longer_to_load_than_the_others_wait(self):
        # Each piece of work on the slow GPU is delayed by 12 ms on average; loading the transformer
        # takes many times as long as computing a layer.
        options = self.options("slow", device__timeout="3s", parallel__mode="phased",
                               parallel__cfg=1)
        words = command_of(options | {"sample.steps": 1})
        slow = ["env", "REELMESH_EMULATED_GPU_DELAY=25000", *words]
        outcome = execute([MPIRUN, "-n", 1, *words, ":", "-n", 1, *slow],
                          {"REELMESH_EMULATED_GPUS": "2"}, timeout=120)
        self.assertEqual(outcome.status, 0, outcome)

    def test_nccl_for_ranks_that_share_a_gpu_is_refused(self):
        self.ends(SHARED, 69, "device.transport is nccl, but ranks 0 and 1 share the GPU",
                  device__transport="nccl")


if __name__ == "__main__":
    main()

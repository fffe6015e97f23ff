"""Messages and exit status of a job if GPUs are missing or too small. On emulated GPUs."""

import h5py

from support import (ERROR, WARNING, Reference, Scratch, main, read_clip, result_files, run,
                     run_unlike)


class GpuErrors(Scratch):
    def setUp(self):
        super().setUp()
        self.reference = Reference("sincos")
        self.output = self.folder / "output"

    def run_on(self, environment, ranks=1, **more):
        options = self.reference.options(self.output, prompt__text="a fox", sample__steps=2,
                                         output__if_exists="replace", **more)
        return run(options, ranks, environment)

    def test_no_gpu(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                outcome = self.run_on({"REELMESH_EMULATED_GPUS": "0"}, ranks)
                self.assertEqual(outcome.status, 69, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn("device.backend is cuda, but there is no CUDA device",
                              outcome.lines(ERROR)[0])
                self.assertFalse(self.output.exists())

    def test_memory_that_is_asked_for_and_not_there(self):
        """The plan only warns that the job exceeds the GPU's memory; the allocation then fails."""
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                outcome = self.run_on({"REELMESH_EMULATED_GPU_MEMORY": str(35 << 20)}, ranks)
                self.assertEqual(outcome.status, 69, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn("no memory left on cuda:0 for ", outcome.lines(ERROR)[0])
                # The rank in the middle has rows of both neighbours.
                self.assertTrue(any(f"rank {ranks // 2} needs" in line
                                    for line in outcome.lines(WARNING)), outcome)
                self.assertEqual(result_files(self.output), [])

    def test_a_limit_that_is_too_low_is_refused(self):
        outcome = self.run_on({}, device__memory_limit="1GiB")
        self.assertEqual(outcome.status, 69, outcome)
        self.assertIn("its limit is 1.00 GiB; what would help: ", outcome.lines(ERROR)[0])
        self.assertFalse(self.output.exists())

    def test_more_memory_of_the_host_than_it_has(self):
        outcome = self.run_on({}, 2, sample__height=16384, sample__width=16384, sample__frames=49)
        self.assertEqual(outcome.status, 69, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        for text in ("2 ranks need ", " together, the host has ", "memory of the host, not of GPUs"):
            self.assertIn(text, outcome.lines(ERROR)[0])
        self.assertEqual(result_files(self.output), [])

    def test_a_driver_that_is_too_old_for_the_kernels(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                outcome = self.run_on({"REELMESH_EMULATED_GPU_DRIVER": "12040"}, ranks)
                self.assertEqual(outcome.status, 69, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                for text in ("kernels were compiled for compute capability 9.0 by CUDA 13.0",
                             "found emulated GPU of compute capability 9.0",
                             "a driver that takes PTX of CUDA up to 12.4",
                             "cudaErrorUnsupportedPtxVersion"):
                    self.assertIn(text, outcome.lines(ERROR)[0])
                self.assertFalse(self.output.exists())

    def test_ranks_with_unlike_gpus_or_libraries(self):
        for environment, difference in (
                ({"REELMESH_EMULATED_GPU_NAME": "H100"},
                 "GPU: emulated GPU (ranks 0-1), H100 (rank 2);"),
                ({"REELMESH_EMULATED_CUDNN": "91600"},
                 "cuDNN: 9.19.0 (ranks 0-1), 9.16.0 (rank 2);")):
            for reproducible in ("yes", "no"):
                with self.subTest(difference=difference, reproducible=reproducible):
                    options = self.reference.options(
                        self.output, prompt__text="a fox", sample__steps=1,
                        output__if_exists="replace", numerics__reproducible=reproducible)
                    outcome = run_unlike(options, [{}, {}, environment],
                                         {"REELMESH_EMULATED_GPUS": "3"})
                    refused = reproducible == "yes"
                    said = outcome.lines(ERROR if refused else WARNING)
                    self.assertEqual(outcome.status, 69 if refused else 0, outcome)
                    self.assertEqual(len([line for line in said if "the GPUs of the ranks differ, "
                                          in line]), 1, outcome)
                    self.assertIn(difference[:-1], said[0])

    def test_ranks_on_which_an_engine_for_convolutions_fails(self):
        """All take the next one, which has other bits here."""
        runs, fails = {}, {"REELMESH_EMULATED_CUDNN_CONVOLUTION": "1"}
        videos = {}
        for name, environments, warns in (("first", [runs, runs], 0), ("next", [fails, fails], 0),
                                          ("mixed", [runs, fails], 1), ("last", [fails, runs], 0)):
            with self.subTest(ranks=name):
                options = self.reference.options(self.folder / name, prompt__text="a fox",
                                                 sample__steps=1, sample__frames=1,
                                                 sample__height=64, sample__width=64,
                                                 numerics__dtype="bfloat16")
                outcome = run_unlike(options, environments, {"REELMESH_EMULATED_GPUS": "2"})
                self.assertEqual(outcome.status, 0, outcome)
                self.assertEqual(outcome.errors.count("all take the next one"), warns, outcome)
                with h5py.File(self.folder / name / "trace.h5", "r") as file:
                    kernels = list(file["ranks/kernels"].asstr()[()])
                for text in kernels:
                    self.assertEqual("another engine" in text, name != "first", kernels)
                videos[name] = read_clip(self.folder / name)["video"].tobytes()
        self.assertEqual(videos["mixed"], videos["next"])
        self.assertEqual(videos["last"], videos["next"])

    def test_ranks_use_the_fastest_engine_for_convolutions(self):
        """That of the first rank, if it has the bits of the reference. The second finds another."""
        fastest = {"reference": 0, "same bits": 3, "other bits": 1, "not reproducible": 1}
        kinds = {"same bits": "a faster engine", "not reproducible": "another engine"}
        videos = {}
        for name, engine in fastest.items():
            with self.subTest(engine=name):
                options = self.reference.options(
                    self.folder / name, prompt__text="a fox", sample__steps=1, sample__frames=1,
                    sample__height=64, sample__width=64, numerics__dtype="bfloat16",
                    numerics__reproducible="no" if name == "not reproducible" else "yes")
                ranks = [{"REELMESH_EMULATED_CUDNN_CONVOLUTIONS_FASTEST": str(number)}
                         for number in (engine, 2)]
                outcome = run_unlike(options, ranks, {"REELMESH_EMULATED_GPUS": "2"})
                self.assertEqual(outcome.status, 0, outcome)
                with h5py.File(self.folder / name / "trace.h5", "r") as file:
                    kernels = list(file["ranks/kernels"].asstr()[()])
                for text in kernels:
                    for kind in ("a faster engine", "another engine"):
                        self.assertEqual(kind in text, kind == kinds.get(name), kernels)
                videos[name] = read_clip(self.folder / name)["video"].tobytes()
        self.assertEqual(videos["same bits"], videos["reference"])
        self.assertEqual(videos["other bits"], videos["reference"])
        self.assertNotEqual(videos["not reproducible"], videos["reference"])

    def test_embeddings_wait_on_the_host(self):
        """The peak of a GPU's memory does not depend on the number of prompts."""
        peaks = []
        for clips in (2, 20):
            prompts = self.folder / "prompts.txt"
            prompts.write_text("".join(f"fox {i}\n" for i in range(clips)))
            options = self.reference.options(
                self.output, prompt__file=prompts, sample__steps=1, sample__frames=1,
                sample__height=16, sample__width=16, output__video="no",
                output__if_exists="replace")
            with h5py.File(self.make(options) / "trace.h5", "r") as file:
                peaks.append(file["ranks/peak_device_memory_bytes"][0])
        self.assertEqual(peaks[0], peaks[1])


if __name__ == "__main__":
    main()

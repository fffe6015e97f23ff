"""Messages and exit status of a job if GPUs are missing or too small. On emulated GPUs."""

from support import ERROR, WARNING, Reference, Scratch, main, result_files, run


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
        """The plan warns that the job exceeds the GPU's memory; the job is tried all the same."""
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                outcome = self.run_on({"REELMESH_EMULATED_GPU_MEMORY": str(35 << 20)}, ranks)
                self.assertEqual(outcome.status, 69, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn("no memory left on cuda:0 for ", outcome.lines(ERROR)[0])
                self.assertTrue(any("rank 0 needs" in line for line in outcome.lines(WARNING)),
                                outcome)
                self.assertEqual(result_files(self.output), [])

    def test_a_limit_that_is_too_low_is_refused(self):
        outcome = self.run_on({}, device__memory_limit="1GiB")
        self.assertEqual(outcome.status, 69, outcome)
        self.assertIn("its limit is 1.00 GiB; what would help: ", outcome.lines(ERROR)[0])
        self.assertFalse(self.output.exists())


if __name__ == "__main__":
    main()

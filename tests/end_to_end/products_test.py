"""numerics.products: what CPUs multiply bfloat16 tensors in is recorded, never mixed within a job's
clips, and the same on all ranks."""

import pathlib

import h5py

from support import (ERROR, PROGRAM, WARNING, Reference, Scratch, arguments, execute, launch, main,
                     read_attributes, read_clip, run)

AVX512 = "avx512f" in pathlib.Path("/proc/cpuinfo").read_text()
AVX2_ONLY = {"ONEDNN_MAX_CPU_ISA": "AVX2"}


def products_of(output):
    with h5py.File(pathlib.Path(output) / "job.h5") as file:
        return read_attributes(file["provenance"])["products"]


class Products(Scratch):
    def setUp(self):
        super().setUp()
        self.reference = Reference("rotary")

    def options(self, name="output", **more):
        return self.reference.options(self.folder / name, prompt__text="a fox", sample__steps=2,
                                      **{"numerics__dtype": "bfloat16"} | more)

    def test_clips_are_not_mixed(self):
        if not AVX512:
            self.skipTest("this processor has no AVX-512")
        wide = read_clip(self.make(self.options(numerics__products="float32")))
        self.assertEqual(products_of(self.folder / "output"), "float32")
        resumed = self.options(numerics__products="bfloat16", output__if_exists="resume")
        narrow = read_clip(self.make(resumed))
        self.assertIn(products_of(self.folder / "output"),
                      ("bfloat16 (AMX)", "bfloat16 (AVX512_BF16)", "bfloat16 (AVX-512)"))
        self.assertNotEqual(wide["latents"].tobytes(), narrow["latents"].tobytes())
        again = run(resumed)
        self.assertIn("1 of 1 clips are complete already", again.errors)

    def test_needs_avx512(self):
        options = self.options(numerics__products="bfloat16")
        planned = self.plan(options, "--ranks", 2)
        outcome = run(options, 2, AVX2_ONLY)
        self.assertEqual(planned.status, 0 if AVX512 else 69, planned)
        self.assertEqual(outcome.status, 69, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        self.assertIn("numerics.products = bfloat16 needs AVX-512", outcome.lines(ERROR)[0])
        self.assertFalse((self.folder / "output").exists())

    def test_vectors_are_recorded_and_plain_code_is_told(self):
        words = [PROGRAM, "run", *arguments({"device.backend": "cpu"} | self.options())]
        outcome = execute(launch(["env", "ONEDNN_MAX_CPU_ISA=AVX2", *words],
                                 ["env", "ONEDNN_MAX_CPU_ISA=SSE41", *words]))
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(len(outcome.lines(WARNING)), 1, outcome)
        self.assertIn("rank 1 computes without AVX2", outcome.lines(WARNING)[0])
        with h5py.File(self.folder / "output" / "job.h5") as file:
            self.assertEqual(list(file["provenance/hosts"]["vectors"]), [b"AVX2", b"SSE4.1"])

    def test_unlike_processors_multiply_in_float32(self):
        self.make(self.options("one"))
        if products_of(self.folder / "one") == "float32":
            self.skipTest("this processor multiplies bfloat16 tensors in float32")
        words = [PROGRAM, "run", *arguments({"device.backend": "cpu"} | self.options("two"))]
        isa = ["=".join(pair) for pair in AVX2_ONLY.items()]
        outcome = execute(launch(words, ["env", *isa, *words]))
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn("the processors differ: rank 0 would multiply in bfloat16",
                      " ".join(outcome.lines(WARNING)))
        self.assertEqual(products_of(self.folder / "two"), "float32")


if __name__ == "__main__":
    main()

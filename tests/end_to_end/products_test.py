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

    def run_unlike(self, instructions, name="output", **more):
        """A job whose ranks have these vector instructions."""
        words = [PROGRAM, "run", *arguments({"device.backend": "cpu"} | self.options(name, **more))]
        return execute(launch(*(["env", f"ONEDNN_MAX_CPU_ISA={isa}", *words]
                                for isa in instructions)))

    def test_unlike_processors_are_refused(self):
        latents = {}
        for isa in ("AVX2", "SSE41"):
            self.assertEqual(self.run_unlike([isa, isa], isa, numerics__dtype="float32").status, 0)
            latents[isa] = read_clip(self.folder / isa)["latents"].tobytes()
        self.assertNotEqual(*latents.values())  # so that bits would depend on the layout
        outcome = self.run_unlike(["AVX2", "SSE41", "AVX2"], numerics__dtype="float32")
        self.assertEqual(outcome.status, 69, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        self.assertIn("the processors of the ranks differ, so bits would depend on the layout: vector "
                      "instructions: AVX2 (ranks 0, 2), SSE4.1 (rank 1); use", outcome.lines(ERROR)[0])
        self.assertFalse((self.folder / "output").exists())

    def test_vectors_are_recorded_and_plain_code_is_told(self):
        outcome = self.run_unlike(["AVX2", "SSE41"], numerics__reproducible="no")
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(len(outcome.lines(WARNING)), 2, outcome)
        self.assertIn("the processors of the ranks differ, so bits may depend on the layout: vector "
                      "instructions: AVX2 (rank 0), SSE4.1 (rank 1)", outcome.lines(WARNING)[0])
        self.assertIn("rank 1 computes without AVX2", outcome.lines(WARNING)[1])
        with h5py.File(self.folder / "output" / "job.h5") as file:
            self.assertEqual(list(file["provenance/hosts"]["vectors"]), [b"AVX2", b"SSE4.1"])

    def test_unlike_processors_multiply_in_float32(self):
        self.make(self.options("one"))
        if products_of(self.folder / "one") == "float32":
            self.skipTest("this processor multiplies bfloat16 tensors in float32")
        options = self.options("two", numerics__reproducible="no")
        words = [PROGRAM, "run", *arguments({"device.backend": "cpu"} | options)]
        isa = ["=".join(pair) for pair in AVX2_ONLY.items()]
        outcome = execute(launch(words, ["env", *isa, *words]))
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn("the processors differ: rank 0 would multiply in bfloat16",
                      " ".join(outcome.lines(WARNING)))
        self.assertEqual(products_of(self.folder / "two"), "float32")


if __name__ == "__main__":
    main()

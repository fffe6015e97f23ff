"""Attention with many keys on real or emulated GPUs (REELMESH_BACKEND=cuda), which uses cuDNN for
16-bit dtypes: the same bits for all layouts, and as close to float32 as our own kernels."""

import h5py
import numpy

from support import (ERROR, LONG, Reference, Scratch, command_of, execute, launch, main,
                     only_long, read_clip, run, run_unlike)
from tables import table

GPUS = {"REELMESH_EMULATED_GPUS": "8", "REELMESH_EMULATED_GPU_DELAY": "100"}
# 512 video tokens, and those of the text.
SIZE = dict(sample__height=256, sample__width=256, sample__frames=8, sample__steps=2 if LONG else 1,
            output__video="no", prompt__text="a fox")


class AttentionOnGpu(Scratch):
    def latents(self, reference, dtype, name, ranks=1, **more):
        options = reference.options(self.folder / name, numerics__dtype=dtype, **SIZE | more)
        clip = read_clip(self.make(options, ranks, GPUS))
        return clip["latents"], clip["attributes"]["layout"]

    def kernels(self, name):
        """What computed on the GPUs, as the trace says; without attention that has a bias."""
        with h5py.File(self.folder / name / "trace.h5") as trace:
            ranks = table(trace, "ranks")
        self.assertEqual(int(ranks["padded_products"].sum()), 0)
        found = {kernel for text in ranks["kernels"] for kernel in text.decode().split("; ")}
        for kind in ("attention", "convolutions", "products"):
            self.assertEqual(sum(kernel.startswith(f"{kind}: ") for kernel in found),
                             0 if kind == "convolutions" else 1, found)
        return found

    def check(self, reference, dtype, table):
        one, _ = self.latents(reference, dtype, "one")
        for index, (ranks, told, more) in enumerate(table):
            with self.subTest(ranks=ranks, layout=told):
                there, layout = self.latents(reference, dtype, str(index), ranks, **more)
                self.assertIn(told, layout)
                self.assertEqual(there.tobytes(), one.tobytes())
        # cuDNN's result is at most 1.2 times as far from float32 as that of our own kernels.
        own, _ = self.latents(reference, dtype, "own", numerics__attention="own")
        self.assertIn("cuDNN", "; ".join(self.kernels("one")))
        self.assertIn("attention: own kernels", self.kernels("own"))
        exact, _ = self.latents(reference, "float32", "float32")
        self.assertFalse(numpy.array_equal(own, one))
        self.assertLess(numpy.linalg.norm(one - exact), 1.2 * numpy.linalg.norm(own - exact))
        self.assertLess(numpy.linalg.norm(own - exact), 0.1 * numpy.linalg.norm(exact))

    def test_bfloat16(self):
        table = ((6, "ring 3 x ulysses 2", dict(parallel__cfg=1, parallel__ring=3)),
                 (2, "ulysses 2", dict(parallel__cfg=1, parallel__ring=1)),
                 (3, "ring 3", dict(device__transport="mpi")),
                 (7, "denoise: ranks", dict(parallel__mode="split")))
        self.check(Reference("rotary"), "bfloat16", table if LONG else table[:1])

    def test_ranks_of_which_one_has_no_such_kernel(self):  # on emulated GPUs only
        own, _ = self.latents(Reference("rotary"), "bfloat16", "own", numerics__attention="own")
        output = self.folder / "mixed"
        words = command_of(Reference("rotary").options(output, numerics__dtype="bfloat16",
                                                       parallel__cfg=1, **SIZE))
        without = ["env", "REELMESH_EMULATED_CUDNN_ATTENTION=0", *words]
        outcome = execute(launch(words, without), GPUS, timeout=120)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(read_clip(output)["latents"].tobytes(), own.tobytes())

    def test_heads_that_the_kernel_does_not_support(self):  # on emulated GPUs only
        """The engine is chosen for all layouts; a share of heads without a plan is one error."""
        options = Reference("rotary").options(self.folder / "few", numerics__dtype="bfloat16",
                                              parallel__cfg=1, parallel__ring=1, **SIZE)
        outcome = run(options, 2, GPUS | {"REELMESH_EMULATED_CUDNN_ATTENTION": "2"})
        self.assertEqual(outcome.status, 69, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        self.assertIn("cuDNN's attention engine does not support 1 head", outcome.lines(ERROR)[0])

    def test_ranks_that_find_other_engines_the_fastest(self):  # on emulated GPUs only
        """All use the engine that is the fastest on the first rank; here engines have other bits."""
        first, second = {}, {"REELMESH_EMULATED_CUDNN_FASTEST": "1"}
        latents = []
        for name, environments in (("first", [first]), ("second", [second]),
                                   ("mixed", [second, first])):
            output = self.folder / name
            options = Reference("rotary").options(output, numerics__dtype="bfloat16",
                                                  parallel__cfg=1, **SIZE)
            outcome = run_unlike(options, environments, GPUS)
            self.assertEqual(outcome.status, 0, outcome)
            latents.append(read_clip(output)["latents"].tobytes())
        self.assertNotEqual(latents[0], latents[1])
        self.assertEqual(latents[1], latents[2])

    def test_a_cudnn_that_gives_parts_other_bits(self):  # on emulated GPUs only
        own, _ = self.latents(Reference("rotary"), "bfloat16", "own", numerics__attention="own")
        for reproducible in ("yes", "no"):
            with self.subTest(reproducible=reproducible):
                output = self.folder / f"parts {reproducible}"
                options = Reference("rotary").options(
                    output, numerics__dtype="bfloat16", parallel__cfg=1,
                    numerics__reproducible=reproducible, **SIZE)
                outcome = run_unlike(options, [{}, {"REELMESH_EMULATED_CUDNN_PARTS": "1"}], GPUS)
                self.assertEqual(outcome.status, 0, outcome)
                same = read_clip(output)["latents"].tobytes() == own.tobytes()
                self.assertEqual(same, reproducible == "yes")

    def test_a_cudnn_whose_convolutions_are_wrong(self):  # on emulated GPUs only
        output = self.folder / "wrong"
        options = Reference("rotary").options(output, numerics__dtype="bfloat16", **SIZE)
        outcome = run(options, 2, GPUS | {"REELMESH_EMULATED_CUDNN": "91002"})
        self.assertEqual(outcome.status, 69, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        self.assertIn("cuDNN 9.10.2 computes 16-bit convolutions over frames wrongly",
                      outcome.lines(ERROR)[0])
        self.assertFalse(output.exists())

    @only_long
    def test_float16(self):
        self.check(Reference("sincos"), "float16", ((3, "ring 3", {}),))


if __name__ == "__main__":
    main()

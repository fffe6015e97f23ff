"""Open-Sora on GPUs (REELMESH_BACKEND=cuda), emulated or not: its own code's results, and the same
bits on other layouts."""

import numpy

from opensora_test import Reference
from support import Scratch, main, read_clip


class OpenSoraOnGpu(Scratch):
    def test_equals_open_sora(self):
        for kind in ("v1_0", "v1_2"):
            with self.subTest(kind=kind):
                reference = Reference(kind)
                clip = read_clip(self.make(reference.options(self.folder / kind)))
                expected = reference.tensors["clip0.latents"].swapaxes(0, 1)
                error = numpy.abs(clip["latents"] - expected).max() / numpy.abs(expected).max()
                self.assertLess(error, 1e-3)
                frames = reference.tensors["clip0.video_frames"].astype(int)
                video = clip["video"][frames].astype(int)
                difference = numpy.abs(video - reference.tensors["clip0.video"].astype(int)).max()
                self.assertLessEqual(difference, 2)

    # Each cuts, exchanges and decodes in another way.
    LAYOUTS = {
        "v1_0": ("bfloat16", 3, {"parallel.shard": "height"}, "rows -> heads"),
        "v1_2": ("float16", 4, {"parallel.mode": "split"}, "frames -> places"),
    }

    def test_same_bits_on_every_layout(self):
        for kind, (dtype, ranks, more, text) in self.LAYOUTS.items():
            with self.subTest(kind=kind):
                base = Reference(kind).options(self.folder / kind, sample__steps=3,
                                               numerics__dtype=dtype)
                alone = read_clip(self.make(base))
                output = self.folder / f"{kind}_{ranks}"
                clip = read_clip(self.make(base | more | {"output.path": output}, ranks))
                self.assertIn(text, clip["attributes"]["layout"])
                for name in ("latents", "video"):
                    self.assertEqual(clip[name].tobytes(), alone[name].tobytes(), name)


if __name__ == "__main__":
    main()

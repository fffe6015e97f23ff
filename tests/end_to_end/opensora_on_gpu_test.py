"""Open-Sora on real or emulated GPUs (REELMESH_BACKEND=cuda) equals the results of Open-Sora's own
code. tests/pipeline/layouts tests layouts."""

import numpy

from opensora_test import Reference
from support import LONG, Scratch, main, read_clip


class OpenSoraOnGpu(Scratch):
    def test_equals_open_sora(self):
        for kind in ("v1_0", "v1_2") if LONG else ("v1_2",):
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


if __name__ == "__main__":
    main()

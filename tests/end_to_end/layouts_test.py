"""Layouts as a user starts them: more ranks than the 8 of tests/pipeline/layouts (which compares
the bits of all layouts), and the bytes that the trace counts.
"""

import json
import math
import re

import h5py
import numpy

from support import Reference, Scratch, main, only_long, read_clip
from tables import table

PHASED = {"parallel.mode": "phased"}


def mesh(cfg, ring, ulysses):
    return {"parallel.cfg": cfg, "parallel.ring": ring, "parallel.ulysses": ulysses}


def boxes_of(layout, name):
    """Number of elements in each rank's box, from a line such as '… [3, 7]: [0:1, 0:7] []'."""
    line = re.search(rf"^{name} \[[^]]*\]: (.*)$", layout, re.MULTILINE)[1]
    sizes = []
    for box in re.findall(r"\[([^]]*)\]", line):
        ranges = [[int(n) for n in axis.split(":")] for axis in box.split(", ")] if box else [[0, 0]]
        sizes.append(math.prod(end - begin for begin, end in ranges))
    return sizes


class LayoutsTest(Scratch):
    def clips_of(self, reference, ranks=1, layout=None, environment=None, **more):
        """Both clips of the reference in a layout, as arrays."""
        options = reference.options(
            self.folder / "output", prompt__file=reference.prompt_file(self.folder),
            output__embeddings="yes", output__if_exists="replace", **more)
        output = self.make({"device.threads": 1} | options | (layout or {}), ranks, environment)
        return [read_clip(output, i) for i in range(len(reference.facts["clips"]))]

    def assert_same_bits(self, clips, expected):
        for index, (clip, one) in enumerate(zip(clips, expected, strict=True)):
            for name in ("token_ids", "prompt_embeds", "latents", "video"):
                self.assertEqual(clip[name].shape, one[name].shape)
                different = clip[name].view(numpy.uint8) != one[name].view(numpy.uint8)
                self.assertEqual(int(different.sum()), 0,
                                 f"{name} of clip {index}: bytes that differ")

    def check(self, kind, table, environment=None, **more):
        reference = Reference(kind)
        expected = self.clips_of(reference, environment=environment, **more)
        self.assertFalse(numpy.array_equal(expected[0]["latents"], expected[1]["latents"]))
        for ranks, layout, told in table:
            with self.subTest(kind=kind, ranks=ranks, layout=layout):
                clips = self.clips_of(reference, ranks, layout, environment, **more)
                description = clips[0]["attributes"]["layout"]
                self.assertIn(f"{ranks} rank{'' if ranks == 1 else 's'}; ", description)
                self.assertIn(told, description)
                self.assert_same_bits(clips, expected)

    def test_more_ranks_than_rows(self):
        # 3 x 5 x 3 tokens of two latent frames each, one frame padded; 10 latent rows are decoded.
        self.check("v1_5", [(12, PHASED | {"parallel.replicas": 1}, "decode: ranks 0-11")])

    @only_long  # tests/layout/mesh counts the bytes of any mesh
    def test_bytes_of_a_step(self):
        """Bytes in the trace are those computed from the boxes: queries and results to the ranks of
        the Ulysses group, keys and values to all ranks of the branch; with cfg 2 a prediction."""
        config = json.loads((Reference("sincos").model / "transformer/config.json").read_text())
        heads, size = config["num_attention_heads"], config["attention_head_dim"]
        patch = config["out_channels"] * config["patch_size"] ** 2
        meshes = ((6, 2, 3, 1), (5, 1, 1, 5), (3, 1, 3, 1), (6, 1, 3, 2), (4, 2, 1, 2),
                  (1, 1, 1, 1))
        for ranks, cfg, ring, ulysses in meshes:
            with self.subTest(cfg=cfg, ring=ring, ulysses=ulysses):
                clip = self.clips_of(Reference("sincos"), ranks, mesh(cfg, ring, ulysses) | PHASED,
                                     trace__level="layers")[0]
                layout = clip["attributes"]["layout"]
                video = boxes_of(layout, r"tokens \[frame, row, column\]")
                tokens = [v + t for v, t in zip(video, boxes_of(layout, "text tokens"),
                                                strict=True)]
                self.assertEqual(len(video), ring * ulysses)
                self.assertEqual(sum(video), 3 * 7 * 5)
                held = [heads // ulysses + (r % ulysses < heads % ulysses)
                        for r in range(ring * ulysses)]
                with h5py.File(self.folder / "output/trace.h5", "r") as trace:
                    spans = table(trace, "spans")
                steps = spans[(spans["name"] == b"denoise_step") & (spans["clip"] == 0)]
                layers = spans[(spans["name"] == b"transformer_block") & (spans["clip"] == 0)]
                for rank in range(ranks):
                    me = rank % (ring * ulysses)
                    others = [r for r in range(ring * ulysses) if r != me]
                    row = [r for r in others if r // ulysses == me // ulysses]
                    elements = sum(2 * tokens[me] * held[r] for r in others)
                    elements += sum(tokens[me] * held[r] + tokens[r] * held[me] for r in row)
                    block = 4 * size * (2 // cfg) * elements
                    mine = layers[layers["rank"] == rank]
                    self.assertEqual(set(mine["bytes"]), {block})
                    prediction = 4 * patch * video[me] if cfg == 2 else 0
                    self.assertEqual(set(steps[steps["rank"] == rank]["bytes"]),
                                     {config["num_layers"] * block + prediction})


if __name__ == "__main__":
    main()

"""The same bits in latents and video for every layout: ranks, cuts, modes, maps, threads.

Each table is compared with one rank of one thread; a row says how many ranks, what differs, and
sees to it that the layout named really came to be. One rank against the reference pipeline is in
reference_test.py.
"""

import json
import math
import re

import h5py
import numpy

from support import Reference, Scratch, main, read_clip

# Layouts: ranks, options, a text that the clip's `layout` must contain.
HEIGHT = {"parallel.shard": "height"}
FRAMES = {"parallel.shard": "frames"}
GRID = {"parallel.shard": "grid"}
SPLIT = {"parallel.mode": "split"}
PHASED = {"parallel.mode": "phased"}


def mesh(cfg, ring, ulysses):
    return {"parallel.cfg": cfg, "parallel.ring": ring, "parallel.ulysses": ulysses}



ROTARY = [  # 4 x 7 x 3 tokens, 7 heads, 5 layers of text encoder
    (1, {"device.threads": 3}, "rank 0"),
    (2, PHASED | HEIGHT | mesh(1, 1, 2), "[0:4, 4:7, 0:3]"),
    (2, PHASED | FRAMES | {"parallel.cfg": 1, "device.threads": 3}, "[2:4, 0:7, 0:3]"),
    (2, PHASED, "cfg 2 x ring 1 x ulysses 1 (cfg takes the first factor of 2"),
    (2, PHASED | {"parallel.ring": 2, "device.threads": 3}, "cfg 1 x ring 2 x ulysses 1"),
    (3, SPLIT, "split"),
    (3, PHASED | {"parallel.device-map": "0-1:0,2-3:2,4:0"}, "layers 0-1:0,2-3:2,4-4:0"),
    (4, PHASED | GRID | {"parallel.cfg": 1}, "[2:4, 4:7, 0:3]"),
    (4, PHASED | {"parallel.ring": 2, "parallel.cfg": 2}, "cfg 2 x ring 2 x ulysses 1"),
    (4, SPLIT | mesh(2, 1, 1), "denoise: ranks 1-2"),
    (4, SPLIT | {"parallel.replicas": 2}, "denoise replica 1: rank 2"),
    (5, PHASED | {"parallel.replicas": 2, "parallel.ulysses": 2}, "denoise replica 1: ranks 2-3"),
    (5, SPLIT | FRAMES | {"parallel.text": 2, "parallel.device-map": "0:1,1-4:0"},
     "layers 0-0:1,1-4:0"),
    (5, PHASED | FRAMES, "decode: ranks 0-4"),  # one rank without frames
    (6, PHASED | mesh(1, 3, 2), "cfg 1 x ring 3 x ulysses 2"),
    (7, PHASED | HEIGHT, "decode: ranks 0-6"),  # one row each
    (7, PHASED | mesh(2, 1, 3), "denoise: ranks 0-5"),  # uneven heads, one rank without a clip
    (8, PHASED | FRAMES | mesh(2, 2, 2), "cfg 2 x ring 2 x ulysses 2"),
    (8, SPLIT | {"parallel.replicas": 2, "parallel.cfg": 1, "parallel.ring": 3},
     "cfg 1 x ring 3 x ulysses 1"),
    (7, SPLIT | GRID | {"parallel.text": 2}, "denoise: ranks 2-5"),
    (7, SPLIT | {"parallel.text": 1, "parallel.decode": 4}, "decode: ranks 3-6"),
    (2, PHASED | HEIGHT | {"device.speeds": "1,3", "parallel.cfg": 1}, "[0:4, 0:2, 0:3]"),
    (3, PHASED | {"device.speeds": "auto"}, "speeds: "),
    (5, SPLIT | FRAMES | {"device.speeds": "1,1,3,2,2", "parallel.decode": 2, "parallel.cfg": 1},
     "[0:1, 0:7, 0:3]"),
    (3, PHASED | {"parallel.order": "rank"}, "decode: ranks 0-2"),
]
SINCOS = [  # 3 x 7 x 5 tokens, 5 heads
    (2, PHASED | {"parallel.text": 1, "parallel.decode": 1}, "decode: rank 0"),
    (3, PHASED | HEIGHT, "[0:3, 5:7, 0:5]"),
    (4, SPLIT | FRAMES, "denoise: ranks 1-2"),
    (5, PHASED | {"parallel.ulysses": 3, "parallel.decode": 5}, "denoise: ranks 0-2"),
    (7, PHASED | FRAMES, "decode: ranks 0-6"),  # more ranks than frames and heads
    (7, PHASED | FRAMES | {"parallel.ring": 7}, "ring 7 x ulysses 1"),
    (6, PHASED | mesh(2, 3, 1), "cfg 2 x ring 3 x ulysses 1"),
]
V1_5 = [  # 3 x 5 x 3 tokens of two frames, one padded; 3 heads
    (1, {"device.threads": 3}, "rank 0"),
    (3, PHASED | FRAMES, "[2:3, 0:5, 0:3]"),  # the padding on a rank of its own
    (4, PHASED | GRID | mesh(1, 2, 2), "text: ranks 0-3"),
    (8, PHASED | mesh(2, 1, 4), "ulysses 4"),  # more ranks than heads
    (7, PHASED | HEIGHT, "decode: ranks 0-6"),  # more ranks than rows
    (12, PHASED, "decode: ranks 0-11"),  # more ranks than the 10 rows that are decoded
]
BFLOAT16 = [
    (1, {"device.threads": 3}, "rank 0"),
    (3, PHASED | HEIGHT, "phased"),
    (5, SPLIT | FRAMES | {"parallel.decode": 2}, "decode: ranks 3-4"),
    (6, PHASED | mesh(2, 3, 1), "cfg 2 x ring 3 x ulysses 1"),
    (8, PHASED | mesh(2, 2, 2), "cfg 2 x ring 2 x ulysses 2"),
    (7, PHASED | FRAMES, "decode: ranks 0-6"),
]


def boxes_of(layout, name):
    """How many elements the box of each rank has, from a line such as '… [3, 7]: [0:1, 0:7] []'."""
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
                self.assertIn(f"{ranks} rank{'' if ranks == 1 else 's'}, ", description)
                self.assertIn(told, description)
                self.assert_same_bits(clips, expected)

    def test_rotary(self):
        self.check("rotary", ROTARY)

    def test_sincos(self):
        self.check("sincos", SINCOS)

    def test_v1_5(self):
        self.check("v1_5", V1_5)

    def test_bfloat16(self):
        self.check("rotary", BFLOAT16, numerics__dtype="bfloat16")
        self.check("sincos", BFLOAT16[-2:], numerics__dtype="bfloat16")

    def test_one_branch(self):
        self.check("rotary", [(3, SPLIT, "split"), (5, PHASED | HEIGHT, "phased"),
                              (4, PHASED | {"parallel.cfg": 2}, "cfg 1 x ring"),
                              (4, PHASED | mesh(2, 1, 2), "one branch leaves cfg to the ring")],
                   sample__guidance=1, sample__dynamic_guidance="no")

    def test_bytes_of_a_step(self):
        """What the trace counts is what the boxes say: queries to the ranks that share a row, keys
        and values to all that attend, results back; and with cfg 2 a prediction."""
        config = json.loads((Reference("sincos").model / "transformer/config.json").read_text())
        heads, size = config["num_attention_heads"], config["attention_head_dim"]
        patch = config["out_channels"] * config["patch_size"] ** 2
        for ranks, cfg, ring, ulysses in ((5, 1, 1, 5), (3, 1, 3, 1), (6, 1, 3, 2), (6, 2, 3, 1),
                                          (4, 2, 1, 2), (1, 1, 1, 1)):
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
                    spans = trace["spans"][()]
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

    def test_other_instructions(self):
        # Other instructions may give other bits, but the same ones in every layout.
        avx2 = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
        table = [(2, PHASED | HEIGHT | {"device.threads": 3}, "phased"),
                 (5, SPLIT | FRAMES, "split")]
        self.check("rotary", table, avx2)
        self.check("rotary", table, avx2, numerics__dtype="bfloat16")

    def test_device_map_as_accelerate_writes_it(self):
        modules = {"shared": 1, "encoder.embed_tokens": 1, "encoder.block.0": 1,
                   "encoder.block.1": 0, "encoder.block.2": 0, "encoder.block.3": 2,
                   "encoder.block.4": 2, "encoder.final_layer_norm": 0, "encoder.dropout": 0}
        path = self.folder / "map.json"
        path.write_text(json.dumps(modules))
        layout = {"parallel.device-map": path}
        self.check("rotary", [
            (3, PHASED | layout, "layers 0-0:1,1-2:0,3-4:2"),
            (5, SPLIT | layout | {"parallel.text": 3}, "layers 0-0:1,1-2:0,3-4:2"),
        ])


if __name__ == "__main__":
    main()

"""Shared by the tests of image to video and of video to video: what the reference pipelines make of
the images and videos in tests/data, and the comparison with it."""

import json
import pathlib

import numpy

from support import DATA, check_bfloat16_errors, options_of, read_clip, read_safetensors, relative

MEDIA = DATA / "media"


class MediaReference:
    """The cases of one tiny checkpoint."""

    def __init__(self, kind):
        self.kind = kind
        self.model = DATA / kind
        facts = json.loads((MEDIA / "reference.json").read_text())
        self.cases = {name: case for name, case in facts.items() if case["kind"] == kind}
        self.tensors = read_safetensors(MEDIA / "reference.safetensors")

    def options(self, output, **more):
        """Options shared by all cases, as those of support.Reference."""
        case = next(iter(self.cases.values()))
        return options_of(self.model, case, case["frames"], output, more)

    def prompt_file(self, folder, **more):
        """Writes the cases, updated by `more`, to a file for prompt.file, one line each."""
        path = pathlib.Path(folder) / f"{self.kind}.jsonl"
        lines = []
        for case in self.cases.values():
            line = {key: case[key] for key in ("prompt", "negative_prompt", "seed", "strength")
                    if key in case}
            line |= {key: str(MEDIA / case[key]) for key in ("image", "video") if key in case}
            lines.append(json.dumps(line | more) + "\n")
        path.write_text("".join(lines))
        return path


def check_clips(test, reference, dtype, ranks=1):
    """Makes the clips of all cases and compares them with the reference. → their output folder."""
    output = test.make(reference.options(test.folder / dtype, numerics__dtype=dtype,
                                         prompt__file=reference.prompt_file(test.folder)), ranks)
    for index, (name, case) in enumerate(reference.cases.items()):
        with test.subTest(case=name, dtype=dtype):
            clip = read_clip(output, index)
            latents = reference.tensors[f"{name}.latents"]
            expected = reference.tensors[f"{name}.video"].astype(numpy.float32)
            test.assertGreater(expected.std(), 5)  # the reference is not uniformly grey
            test.assertEqual(clip["latents"].shape, latents.shape)
            test.assertEqual(clip["video"].shape, (4 * len(latents) - 3 * (len(latents) % 2),
                                                   *expected.shape[1:]))
            video = clip["video"][case["video_frames"]].astype(numpy.float32)
            test.assertEqual(clip["attributes"]["dtype"], dtype)
            test.assertEqual(clip["attributes"]["seed"], case["seed"])
            if dtype == "float32":
                test.assertLessEqual(relative(clip["latents"], latents), 2e-4)
                test.assertLessEqual(numpy.abs(video - expected).max(), 2)
                continue
            check_bfloat16_errors(test, name, case["bfloat16"], clip["latents"], latents, video,
                                  expected)
    return output


def check_same_clips(test, output, expected, count):
    for index in range(count):
        clip, one = read_clip(output, index), read_clip(expected, index)
        for name in ("latents", "video"):
            test.assertEqual(clip[name].tobytes(), one[name].tobytes(), f"{name} of clip {index}")


def add_parity_tests(test_case, kinds):
    """Adds a test for each kind and type: the clips are those of the reference."""
    for kind in kinds:
        for dtype in ("float32", "bfloat16"):
            def test(self, kind=kind, dtype=dtype):
                check_clips(self, MediaReference(kind), dtype)
            setattr(test_case, f"test_{kind}_{dtype}", test)

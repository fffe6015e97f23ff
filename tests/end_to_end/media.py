"""Shared by the tests of image to video and of video to video: what the reference pipelines make of
the images and videos in tests/data, and the comparison with it."""

import json
import pathlib

import numpy

from support import DATA, options_of, read_clip, read_safetensors, relative, rms

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
            torch = case["bfloat16"]
            error = rms(clip["latents"], latents) / numpy.abs(latents).max()
            levels = rms(video, expected)
            print(f"{name}, bfloat16 against PyTorch's own: "
                  f"latents {error / torch['latents']['rms']:.2f}, "
                  f"video {levels / torch['video_levels']['rms']:.2f}")
            test.assertLessEqual(error, 1.5 * torch["latents"]["rms"])
            test.assertLessEqual(levels, 1.5 * torch["video_levels"]["rms"])
            test.assertGreater(error, 1e-5)  # it really was computed in bfloat16
    return output


def check_same_clips(test, output, expected, count):
    for index in range(count):
        clip, one = read_clip(output, index), read_clip(expected, index)
        for name in ("latents", "video"):
            test.assertEqual(clip[name].tobytes(), one[name].tobytes(), f"{name} of clip {index}")

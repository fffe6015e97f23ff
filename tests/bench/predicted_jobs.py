"""Jobs whose memory and time are predicted and measured, and the models and files that they need."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

import numpy

from throughput_support import ENVIRONMENT

TIMEOUT = 900  # seconds of a job
ROOT = pathlib.Path(__file__).resolve().parents[2]

# Name → preset of make-model and its options: the widths of released models, with few layers.
MODELS = {
    "2b": ("cogvideox-2b", "--layers", "4", "--text-layers", "1"),
    "5b": ("cogvideox-5b", "--layers", "2", "--text-layers", "2"),
    "1.5": ("cogvideox-1.5-5b", "--layers", "2", "--text-layers", "4"),
    "i2v": ("cogvideox-5b-i2v", "--layers", "1", "--text-layers", "1"),
    "1.5-i2v": ("cogvideox-1.5-5b-i2v", "--layers", "3", "--text-layers", "1"),
    "stdit": ("opensora-1.0-16x256x256", "--layers", "4", "--text-layers", "2"),
    "stdit3": ("opensora-1.2", "--layers", "4", "--text-layers", "1"),
}
# Models of the repository.
SMALL_MODELS = {"demo": ROOT / "inputs/demo_model", "tiny": ROOT / "tests/data/cogvideox/v1_5"}


def words(options):
    return dict(word.split("=", 1) for word in options.split())


@dataclasses.dataclass
class Job:
    name: str
    model: str
    ranks: int
    size: str  # frames x height x width
    dtype: str
    options: str = ""  # words key=value; {image}, {video}, {clip} and {lora} are files
    # Lines of the .jsonl file of prompts. FLOPs of Open-Sora depend on the length of the text, and
    # the plan has those of the longest, so all have the same prompt.
    clips: list = dataclasses.field(default_factory=lambda: [{}])

    def lines(self):
        return [{"prompt": "Rain falls on a window at night."} | clip for clip in self.clips]

    def settings(self, files):
        """Words of the command line, without model, prompts and output."""
        frames, height, width = self.size.split("x")
        settings = {"sample.frames": frames, "sample.height": height, "sample.width": width,
                    "sample.steps": "2", "numerics.dtype": self.dtype, "device.threads": "1",
                    "device.backend": "cpu"}
        settings |= words(self.options.format(**files))
        return [f"--{key}={value}" for key, value in settings.items()]

    def batch(self):
        """How many clips are computed together."""
        return int(words(self.options).get("sample.batch", 1))


class Training(Job):
    """A job of `reelmesh train` on two samples of a video, whose frames are repeated."""

    def settings(self, files):
        frames, height, width = self.size.split("x")
        settings = {"data.path": files["samples"], "data.fps": "240", "data.frames": frames,
                    "data.height": height, "data.width": width, "train.steps": "2",
                    "numerics.dtype": self.dtype, "device.threads": "1", "device.backend": "cpu"}
        settings |= words(self.options)
        return [f"--{key}={value}" for key, value in settings.items()]


class Failed(Exception):
    """A program has failed; the text says why."""


class Bench:
    def __init__(self, arguments, folder):
        self.program = arguments.reelmesh.resolve()
        self.folder = folder
        self.keep = arguments.keep is not None
        # Hashes of weights are remembered there, not in the user's folder.
        self.environment = os.environ | ENVIRONMENT | {"XDG_CACHE_HOME": str(folder / "cache")}

    def call(self, *words):
        """→ standard output."""
        try:
            done = subprocess.run([str(word) for word in words], env=self.environment, text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT,
                                  check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"not finished after {TIMEOUT} s") from None
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if ": error: " in line]
            raise Failed((errors or done.stderr.splitlines()[-1:] or ["no message"])[0]
                         + f" (status {done.returncode})")
        return done.stdout

    def model(self, name):
        """Makes the model unless it is there, and removes the others. → its folder."""
        if name in SMALL_MODELS:
            return SMALL_MODELS[name]
        models = self.folder / "models"
        models.mkdir(exist_ok=True)
        for other in models.iterdir():
            if not self.keep and other.name != name:
                shutil.rmtree(other)
        folder, new = models / name, models / f"{name}.new"
        if not folder.exists():
            shutil.rmtree(new, ignore_errors=True)
            preset, *more = MODELS[name]
            self.call(self.program, "make-model", preset, new, *more, "--no-sync")
            new.rename(folder)
        return folder

    def files(self, options):
        """The files that a job's options name; those that do not exist yet are made."""
        files = {"image": ROOT / "inputs/demo_picture.png",
                 "video": ROOT / "tests/data/media/upright.mp4",
                 "lora": self.folder / "lora.safetensors",
                 "clip": self.folder / "earlier/clips/000000.h5",
                 "samples": self.folder / "samples.csv"}
        files["samples"].write_text(f"video,prompt\n{files['video']},rain\n{files['video']},snow\n")
        if "{lora}" in options and not files["lora"].exists():
            write_lora(files["lora"])
        if "{clip}" in options and not files["clip"].exists():
            self.call(self.program, "run", "--model.path", SMALL_MODELS["demo"], "--prompt.text",
                      "a red circle rises", "--sample.frames", 17, "--sample.steps", 2,
                      "--output.path", self.folder / "earlier")
        return files

    def prompts(self, lines):
        path = self.folder / "prompts.jsonl"  # always this one, as memory depends on its path
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path


def write_lora(path):
    """Changes of attention and feed-forward layers of the model 2b, in the form of diffusers."""
    rank, width, generator = 64, 1920, numpy.random.default_rng(0)
    tensors = {}
    for layer in range(int(MODELS["2b"][2])):
        for module, rows, columns in (
                *((f"attn1.{part}", width, width) for part in ("to_q", "to_k", "to_v", "to_out.0")),
                ("ff.net.0.proj", 4 * width, width), ("ff.net.2", width, 4 * width)):
            for letter, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                name = f"transformer.transformer_blocks.{layer}.{module}.lora_{letter}.weight"
                values = generator.standard_normal(shape, dtype=numpy.float32)
                tensors[name] = (1e-3 * values).astype(numpy.float32)
    header, end = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape,
                        "data_offsets": [end, end + tensor.nbytes]}
        end += tensor.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())

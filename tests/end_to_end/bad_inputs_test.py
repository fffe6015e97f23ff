"""A table of bad inputs: each is refused with one error message and the documented exit status, and
leaves the disk as it was.

bad_inputs.md is this table with the messages. `bad_inputs_test.py --table FILE` writes it; the test
checks that the committed file is up to date.
"""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import sys
import typing

from media import MEDIA, MediaReference
from support import (ERROR, MPIRUN, PROGRAM, Reference, Scratch, arguments, execute, main,
                     read_header, result_files, write_header)

USAGE, DATA_ERROR, NO_INPUT, UNAVAILABLE, CANNOT_CREATE = 64, 65, 66, 69, 73
HERE = pathlib.Path(__file__).parent
REMOVED = object()
TRANSFORMER = "transformer/diffusion_pytorch_model.safetensors"
INDEX = "transformer/diffusion_pytorch_model.safetensors.index.json"


class Case:
    """A row that is being tried: a folder, in which the changes of the row make its inputs."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.reference = Reference("sincos")
        self.output = folder / "output"
        self.options = self.reference.options(self.output, prompt__text=["one", "two"])
        self.options["device.backend"] = "cpu"
        self.words = []  # more arguments, after the options
        self.limit = None  # of memory, as an option of ulimit: "-v 150000"

    def copy_model(self, kind="sincos"):
        """A copy of a checkpoint without the reference files; the same one when called again."""
        model = self.folder / "model"
        if not model.exists():
            shutil.copytree(Reference(kind).model, model,
                            ignore=shutil.ignore_patterns("reference.*"))
            self.options["model.path"] = model
        return model

    def command(self, ranks):
        program = [PROGRAM, "run"] + arguments(self.options) + self.words
        if self.limit is not None:
            program = ["sh", "-c", f'ulimit {self.limit}; exec "$0" "$@"'] + program
        return program if ranks == 1 else [MPIRUN, "-n", ranks] + program

    def files(self):
        """Everything in the folder: path -> what it is."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_symlink():
                found[path] = os.readlink(path)
            else:
                found[path] = path.read_bytes() if path.is_file() else "folder"
        return found


# What a row changes: functions that change a case.

def option(key, *values):
    """Gives an option these values; none: leaves it out."""
    def change(case):
        case.options.pop(key, None)
        if values:
            case.options[key] = [str(value).format(DIR=case.folder) for value in values]
    return change


def words(*more):
    return lambda case: case.words.extend(more)


def file(name, content):
    def change(case):
        path = case.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return change


def job_file(content):
    return [file("job.cfg", content), option("config", "{DIR}/job.cfg")]


def prompts(content, name="prompts.jsonl"):
    return [file(name, content), option("prompt.text"), option("prompt.file", "{DIR}/" + name)]


def model_file(name, content):
    """Replaces a file of the model; None removes it."""
    def change(case):
        path = case.copy_model() / name
        if path.is_dir():
            shutil.rmtree(path)
        elif content is None:
            path.unlink()
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return change


def config(part, key, value):
    """Sets a key in a part's config, or removes it."""
    name = {"scheduler": "scheduler/scheduler_config.json", "index": "model_index.json",
            "tokenizer": "tokenizer/tokenizer_config.json"}.get(part, f"{part}/config.json")

    def change(case):
        path = case.copy_model() / name
        values = json.loads(path.read_text())
        values[key] = value
        if value is REMOVED:
            del values[key]
        path.write_text(json.dumps(values))
    return change


def header(edit):
    """Edits the header of the transformer's weights."""
    def change(case):
        path = case.copy_model() / TRANSFORMER
        values, data = read_header(path)
        edit(values)
        write_header(path, values, data)
    return change


def tensor(name, key, value):
    """Sets a value of a tensor's entry; a function gets the old value."""
    def edit(values):
        values[name][key] = value(values[name][key]) if callable(value) else value
    return header(edit)


def weights(edit):
    """Replaces the bytes of the transformer's weights by edit(bytes)."""
    def change(case):
        path = case.copy_model() / TRANSFORMER
        path.write_bytes(edit(path.read_bytes()))
    return change


def length(count):
    return weights(lambda blob: count.to_bytes(8, "little") + blob[8:])


def index_entry(target):
    """In the index of the model in several files, the file of the first tensor."""
    def change(case):
        path = case.copy_model("rotary") / INDEX
        case.options |= {"sample.height": 112, "sample.width": 48}
        values = json.loads(path.read_text())
        values["weight_map"][min(values["weight_map"])] = str(target).format(DIR=case.folder)
        path.write_text(json.dumps(values))
    return change


def link(name, target):
    """Moves a file or folder of the model to `target` and puts a link in its place."""
    def change(case):
        path = case.copy_model() / name
        there = pathlib.Path(target.format(DIR=case.folder))
        there.parent.mkdir(parents=True, exist_ok=True)
        path.rename(there)
        path.symlink_to(there)
    return change


def broken_link(name):
    def change(case):
        path = case.copy_model() / name
        path.unlink()
        path.symlink_to("nowhere")
    return change


def media(name, key):
    """A copy of an image or video of tests/data, and the option that names it."""
    return [file(name, (MEDIA / name).read_bytes()), option(key, "{DIR}/" + name)]


def model_of(kind):
    """The tiny checkpoint of a kind, with the size of its clips in tests/data/cogvideox/media."""
    return lambda case: case.options.update(MediaReference(kind).options(case.output))


FROM_IMAGE = [model_of("i2v"), *media("exact.png", "prompt.image")]
FROM_VIDEO = [model_of("sincos"), *media("exact.mkv", "prompt.video"),
              option("sample.strength", 0.6)]


def limit(option):
    def change(case):
        case.limit = option
    return change


@dataclasses.dataclass
class Row:
    given: str
    change: typing.Any  # a function of a case, or a list of them
    status: int
    told: tuple  # parts of the message, in which {DIR} is the folder of the case
    ranks: int = 1
    varies: bool = False  # the message depends on the machine, or on libraries: the table shows `told`
    remains: str = "nothing"


def row(given, change, status, *told, **more):
    changes = change if isinstance(change, list) else [change]
    return Row(given, changes, status, told, **more)


LONG_NAME = "x" * 300  # Linux takes 255 bytes

NUMBERS = [
    ("`--sample.height 0`", "sample.height", "0", "a whole number from 8 to 16384"),
    ("`--sample.height -1`", "sample.height", "-1", "a whole number from 8 to 16384"),
    ("`--sample.width 1e3`", "sample.width", "1e3", "a whole number from 8 to 16384"),
    ("`--sample.width +64`", "sample.width", "+64", "a whole number from 8 to 16384"),
    ("`--sample.frames many`", "sample.frames", "many", "a whole number from 1 to 10000"),
    ("`--sample.frames 18446744073709551616`", "sample.frames", 1 << 64, "from 1 to 10000"),
    ("`--sample.steps 0`", "sample.steps", "0", "a whole number from 1 to 1000"),
    ("`--sample.steps 2.5`", "sample.steps", "2.5", "a whole number from 1 to 1000"),
    ("an empty number", "sample.steps", "", "a whole number from 1 to 1000"),
    ("`--sample.guidance nan`", "sample.guidance", "nan", "a number from 0 to 1000"),
    ("`--sample.guidance inf`", "sample.guidance", "inf", "a number from 0 to 1000"),
    ("`--sample.fps -inf`", "sample.fps", "-inf", "a number from 0.01 to 1000"),
    ("`--sample.seed -1`", "sample.seed", "-1", "a whole number from 0 to 18446744073709551615"),
    ("a seed of 2^64", "sample.seed", 1 << 64, "a whole number from 0 to 18446744073709551615"),
    ("`--device.memory-limit 0`", "device.memory-limit", "0", "a size above 0"),
    ("`--device.memory-limit 12parsecs`", "device.memory-limit", "12parsecs", "16GiB"),
    ("`--device.timeout 1e300`", "device.timeout", "1e300", ""),
    ("`--restart.every 0`", "restart.every", "0", "a whole number from 1 to 1000"),
    ("`--restart.every sometimes`", "restart.every", "sometimes", "a time such as"),
    ("`--restart.on-signal TERM`", "restart.on-signal", "TERM", "yes or no"),
    ("`--max-time 0s`", "max-time", "0s", "a time above 0"),
    ("`--numerics.dtype float64`", "numerics.dtype", "float64", "one of float32, bfloat16"),
    ("`--output.video maybe`", "output.video", "maybe", "yes or no"),
]

OPTIONS = [row(given, option(key, value), USAGE, f"--{key}: found '{value}', expected ", expected)
           for given, key, value, expected in NUMBERS] + [
    row("an unknown option", words("--sample.stepz", "4"), USAGE,
        "unknown option --sample.stepz; did you mean --sample.steps?"),
    row("an unknown option", words("--sample.stepz", "4"), USAGE,
        "unknown option --sample.stepz; did you mean --sample.steps?", ranks=3),
    row("an option by another program's name", words("--num_inference_steps", "4"), USAGE,
        "unknown option --num_inference_steps; did you mean --sample.steps?"),
    row("an option that is like none", words("--nonsense", "4"), USAGE,
        "unknown option --nonsense"),
    row("an option of a training", words("--train.lr", "1e-4"), USAGE,
        "unknown option --train.lr; train.learning-rate is an option of reelmesh train"),
    row("an option that there is not", words("--epochs", "3"), USAGE,
        "unknown option --epochs; there is none: "),
    row("`--numerics.dtype bf16`", option("numerics.dtype", "bf16"), USAGE,
        "--numerics.dtype: found 'bf16', expected bfloat16"),
    row("`--max-time 1:99:00`", option("max-time", "1:99:00"), USAGE,
        "--max-time: found '1:99:00', expected a time such as 90s, 10min or 1:30:00"),
    row("a video as output", option("output.path", "{DIR}/clip.mp4"), USAGE,
        "--output.path: found '{DIR}/clip.mp4', expected a folder; ", "reelmesh-export"),
    row("a path of another user", option("model.path", "~cat/model"), USAGE,
        "--model.path: found '~cat/model', expected a path"),
    row("an option twice", option("sample.steps", 4, 5), USAGE,
        "sample.steps: given twice ('4' and '5'), expected once"),
    row("an option without a value", words("--output.video"), USAGE, "--output.video",
        "no value"),
    row("a word that is no option", words("please"), USAGE, "unexpected argument 'please'"),
    row("no `model.path`", option("model.path"), USAGE, "model.path is missing"),
    row("no `output.path`", option("output.path"), USAGE, "output.path is missing"),
    row("an empty path", option("output.path", ""), USAGE, "output.path: found an empty value"),
    row("a path that is not UTF-8", option("model.path", "model\udcff"), DATA_ERROR,
        "model.path: found byte 5 (0xff), expected UTF-8 text"),
    row("a path with a line end", option("model.path", "no\nmodel"), NO_INPUT,
        "model.path: folder no model not found"),
    row("a height that is no multiple of 16", option("sample.height", 104), USAGE,
        "sample.height: clip 0 has 104, expected a multiple of 16"),
    row("a height that is no multiple of 16", option("sample.height", 104), USAGE,
        "sample.height: clip 0 has 104, expected a multiple of 16", ranks=3),
    row("a seed whose last clip exceeds 64 bits", option("sample.seed", (1 << 64) - 1), USAGE,
        "sample.seed: 18446744073709551615 + 1 for clip 1 exceeds 64 bits"),
    row("a shift for samplers without one", option("sample.flow-shift", 3), USAGE,
        "sample.flow-shift: found 3 for clip 0, expected none: "),
    row("noise levels for samplers with their own", option("sample.noise-levels", "1,0.5"), USAGE,
        "sample.noise-levels: found 1,0.5 for clip 0, expected none: "),
]

JOB_FILES = [
    row("no such job file", option("config", "{DIR}/none.cfg"), NO_INPUT,
        "--config: file '{DIR}/none.cfg' not found"),
    row("a folder as job file", option("config", "{DIR}"), NO_INPUT, "'{DIR}' is not a file"),
    row("an unknown section", job_file("[sampel]\nsteps = 4\n"), USAGE,
        "{DIR}/job.cfg:1: unknown section [sampel]; did you mean [sample]?"),
    row("a section of a training", job_file("[train]\nsteps = 4\n"), USAGE,
        "{DIR}/job.cfg:1: unknown section [train]; it is a section of reelmesh train"),
    row("an unclosed section", job_file("[sample\nsteps = 4\n"), USAGE,
        "{DIR}/job.cfg:1: found '[sample', expected '[section]'"),
    row("an unknown key", job_file("[sample]\n\n# more\nstep = 4\n"), USAGE,
        "{DIR}/job.cfg:4: unknown key sample.step; did you mean sample.steps?"),
    row("an unknown key", job_file("[parallel]\nshards = height\n"), USAGE,
        "{DIR}/job.cfg:2: unknown key parallel.shards; did you mean parallel.shard?", ranks=3),
    row("a key twice", job_file("[sample]\nbatch = 4\nbatch = 5\n"), USAGE,
        "{DIR}/job.cfg:3: sample.batch: given twice ('4' and '5'), expected once"),
    row("a comment behind a value", job_file("[sample]\nbatch = 4 # clips\n"), USAGE,
        "{DIR}/job.cfg:2: sample.batch: found '4 # clips', expected ", "a line of its own"),
    row("a binary job file", job_file(bytes(range(256))), DATA_ERROR,
        "{DIR}/job.cfg:1: found byte 0 (0x00), expected UTF-8 text"),
    row("a zero byte in a value", job_file(b"[sample]\nfps = 1\x000\n"), DATA_ERROR,
        "{DIR}/job.cfg:2: found byte 7 (0x00), expected UTF-8 text"),
    row("a line of 1 MB", job_file("x" * (1 << 20)), USAGE, "{DIR}/job.cfg:1: found 'xxx",
        "expected '[section]'"),
]

PROMPTS = [
    row("no prompt", option("prompt.text"), USAGE, "prompt.text"),
    row("no such prompt file", [option("prompt.text"), option("prompt.file", "{DIR}/none.txt")],
        NO_INPUT, "prompt.file: file '{DIR}/none.txt' not found"),
    row("a prompt file of an unknown kind", prompts("one\n", "prompts.csv"), USAGE,
        "prompt.file: found '{DIR}/prompts.csv', expected a .txt, .jsonl or .json file"),
    row("a prompt file without prompts", prompts("# none\n", "prompts.txt"), USAGE,
        "prompt.file: found no prompt in '{DIR}/prompts.txt', expected at least one"),
    row("a prompt of 65537 bytes", option("prompt.text", "x" * 65537), USAGE,
        "--prompt.text: found a prompt of 65537 bytes, expected at most 65536"),
    row("a prompt file that is not UTF-8", prompts(b"one\ncaf\xe9\n", "prompts.txt"), DATA_ERROR,
        "{DIR}/prompts.txt:2: found byte 3 (0xe9), expected UTF-8 text"),
    row("a line that is not JSON", prompts('{"prompt": "one"}\ntwo\n'), DATA_ERROR,
        "{DIR}/prompts.jsonl:2: not valid JSON: parse error"),
    row("a line that is no object", prompts('["one"]\n'), USAGE,
        "{DIR}/prompts.jsonl:1: found array, expected a JSON object"),
    row("an unknown field", prompts('{"prompt": "one", "step": 4}\n'), USAGE,
        '{DIR}/prompts.jsonl:1: unknown field "step"; did you mean "steps"?'),
    row("a field by another program's name",
        prompts('{"prompt": "one", "num_frames": 9}\n'), USAGE,
        '{DIR}/prompts.jsonl:1: unknown field "num_frames"; did you mean "frames"?'),
    row("a field twice", prompts('{"prompt": "one", "steps": 4, "steps": 5}\n'), DATA_ERROR,
        "{DIR}/prompts.jsonl:1: key 'steps' appears twice"),
    row("a field of another type", prompts('{"prompt": "one", "steps": "4"}\n'), USAGE,
        '{DIR}/prompts.jsonl:1: steps: found "4", expected a number'),
    row("a prompt that is an object", prompts('{"prompt": {"en": "one"}}\n'), USAGE,
        "{DIR}/prompts.jsonl:1: prompt: found an object, expected a text"),
    row("a zero byte in a prompt", prompts('{"prompt": "o\\u0000e"}\n'), DATA_ERROR,
        "{DIR}/prompts.jsonl:1: prompt: found byte 1 (0x00), expected UTF-8 text"),
    row("deeply nested JSON", prompts("[" * 100000), DATA_ERROR,
        "{DIR}/prompts.jsonl:1: found JSON nested deeper than 2 levels"),
    row("a height out of range", prompts('{"prompt": "one", "height": 4}\n'), USAGE,
        "{DIR}/prompts.jsonl:1: height: found '4', expected a whole number from 8 to 16384"),
    row("a height that is no multiple of 16 in the second line",
        prompts('{"prompt": "one"}\n{"prompt": "two", "height": 104}\n'), USAGE,
        "{DIR}/prompts.jsonl:2: height: clip 1 has 104, expected a multiple of 16"),
    row("a token id outside the vocabulary", prompts('{"token_ids": [5, 352, 1]}\n'), USAGE,
        "{DIR}/prompts.jsonl:1: token_ids", "352"),
]

PARTS = [
    row("no such model folder", option("model.path", "{DIR}/none"), NO_INPUT,
        "model.path: folder {DIR}/none not found"),
    row("a path longer than the system takes as model folder", option("model.path", LONG_NAME),
        NO_INPUT, "model.path: folder xxx", "not found"),
    row("a file as model folder", [file("model", "x"), option("model.path", "{DIR}/model")],
        NO_INPUT, "model.path: folder {DIR}/model not found"),
    row("a part's folder that is not there", option("model.vae", "{DIR}/none"), NO_INPUT,
        "model.vae: folder {DIR}/none not found"),
] + [
    row(f"no `{part}/`", lambda case, part=part: shutil.rmtree(case.copy_model() / part), NO_INPUT,
        f"model.{part.replace('_', '-')}: folder {{DIR}}/model/{part} not found")
    for part in ("transformer", "vae", "text_encoder", "tokenizer", "scheduler")
] + [
    row("no `model_index.json`", model_file("model_index.json", None), NO_INPUT,
        "{DIR}/model/model_index.json: not found"),
    row("no weights of the transformer", model_file(TRANSFORMER, None), NO_INPUT,
        "{DIR}/model/transformer: found neither "),
    row("a folder in place of the weights",
        [model_file(TRANSFORMER, None),
         lambda case: (case.copy_model() / TRANSFORMER).mkdir()], DATA_ERROR,
        f"{{DIR}}/model/{TRANSFORMER}: not a regular file"),
    row("weights that are a broken link", broken_link(TRANSFORMER), NO_INPUT,
        f"{{DIR}}/model/{TRANSFORMER}: is a link to nowhere, which is not there"),
    row("weights that are a link out of the checkpoint",
        link(TRANSFORMER, "{DIR}/elsewhere/weights"), DATA_ERROR,
        f"{{DIR}}/model/{TRANSFORMER}: is a link to {{DIR}}/elsewhere/weights, expected a path "
        "within {DIR}/model"),
    row("weights that are a link out of the checkpoint",
        link(TRANSFORMER, "{DIR}/elsewhere/weights"), DATA_ERROR,
        f"{{DIR}}/model/{TRANSFORMER}: is a link to {{DIR}}/elsewhere/weights", ranks=3),
    row("a part that is a link out of the checkpoint", link("vae", "{DIR}/elsewhere/vae"),
        DATA_ERROR, "{DIR}/model/vae: is a link to {DIR}/elsewhere/vae, expected a path within "
        "{DIR}/model (model.vae takes a folder elsewhere)"),
]

CONFIGS = [
    row("a config that is not JSON", model_file("vae/config.json", "{"), DATA_ERROR,
        "{DIR}/model/vae/config.json: not valid JSON: parse error"),
    row("a config that is a list", model_file("vae/config.json", "[]"), DATA_ERROR,
        "{DIR}/model/vae/config.json: found array, expected a JSON object"),
    row("an empty config", model_file("vae/config.json", ""), DATA_ERROR,
        "{DIR}/model/vae/config.json: not valid JSON", varies=True),
    row("a key of a config twice",
        model_file("vae/config.json", '{"in_channels": 3, "in_channels": 3}'), DATA_ERROR,
        "{DIR}/model/vae/config.json: key 'in_channels' appears twice"),
    row("`NaN` in a config", config("transformer", "norm_eps", float("nan")), DATA_ERROR,
        "{DIR}/model/transformer/config.json: not valid JSON"),
    row("a number beyond double", model_file("vae/config.json", '{"norm_eps": 1e999}'),
        DATA_ERROR, "{DIR}/model/vae/config.json: not valid JSON: number overflow"),
    row("a config of another type", config("transformer", "num_layers", "two"), DATA_ERROR,
        "{DIR}/model/transformer/config.json: 'num_layers' is \"two\", expected an integer"),
    row("2^64 layers", config("transformer", "num_layers", 1 << 64), DATA_ERROR,
        "{DIR}/model/transformer/config.json: 'num_layers' is 1.8446744073709552e+19, expected"),
    row("a size beyond the limits", config("transformer", "sample_height", 100000), DATA_ERROR,
        "'sample_height' is 100000, expected an integer from 1 to 2048"),
    row("an unknown pipeline", config("index", "_class_name", "HunyuanVideoPipeline"), DATA_ERROR,
        "{DIR}/model/model_index.json: found pipeline HunyuanVideoPipeline, expected "
        "CogVideoXImageToVideoPipeline or CogVideoXPipeline or CogVideoXVideoToVideoPipeline or "
        "OpenSoraPipeline or WanImageToVideoPipeline or WanPipeline or WanVideoToVideoPipeline"),
    row("no pipeline", config("index", "_class_name", REMOVED), DATA_ERROR,
        "{DIR}/model/model_index.json: no '_class_name'"),
    row("a transformer of another class",
        config("transformer", "_class_name", "WanTransformer3DModel"), DATA_ERROR,
        "{DIR}/model/transformer/config.json: the class is WanTransformer3DModel, expected "
        "CogVideoXTransformer3DModel"),
    row("a VAE of another class", config("vae", "_class_name", "AutoencoderKL"), DATA_ERROR,
        "{DIR}/model/vae/config.json: the class is AutoencoderKL, expected "
        "AutoencoderKLCogVideoX"),
    row("a text encoder of another class",
        config("text_encoder", "architectures", ["UMT5EncoderModel"]), DATA_ERROR,
        "{DIR}/model/text_encoder/config.json: the class is UMT5EncoderModel, expected "
        "T5EncoderModel"),
    row("a text encoder with another activation",
        config("text_encoder", "feed_forward_proj", "relu"), DATA_ERROR,
        "{DIR}/model/text_encoder/config.json: feed_forward_proj is 'relu', expected"),
    row("parts that do not match", config("vae", "latent_channels", 8), DATA_ERROR,
        "{DIR}/model: the autoencoder has 8 latent channels, expected 4 as in the transformer"),
    row("a scheduler of another class",
        config("index", "scheduler", ["diffusers", "EulerDiscreteScheduler"]), DATA_ERROR,
        "{DIR}/model/model_index.json: scheduler: found the class EulerDiscreteScheduler, "
        "expected CogVideoXDDIMScheduler or CogVideoXDPMScheduler"),
    row("another class of a part in the index",
        config("index", "vae", ["diffusers", "AutoencoderKL"]), DATA_ERROR,
        "{DIR}/model/vae/config.json: the class is AutoencoderKLCogVideoX, expected AutoencoderKL, "
        "as {DIR}/model/model_index.json: vae says"),
    row("a scheduler with another prediction",
        config("scheduler", "prediction_type", "epsilon"), DATA_ERROR,
        "{DIR}/model/scheduler/scheduler_config.json: prediction_type is"),
    row("a scheduler without timesteps", config("scheduler", "num_train_timesteps", 0), DATA_ERROR,
        "'num_train_timesteps' is 0, expected an integer from 1 to 1000000"),
    row("no tokenizer model", model_file("tokenizer/spiece.model", None), NO_INPUT,
        "{DIR}/model/tokenizer: found neither spiece.model nor tokenizer.json, expected one of "
        "them"),
    row("a tokenizer model that is none", model_file("tokenizer/spiece.model", "x" * 1000),
        DATA_ERROR, "{DIR}/model/tokenizer/spiece.model: damaged, expected a sentencepiece model"),
    row("a tokenizer.json that is none",
        [model_file("tokenizer/spiece.model", None), model_file("tokenizer/tokenizer.json", "x")],
        DATA_ERROR, "{DIR}/model/tokenizer/tokenizer.json: not valid JSON"),
    row("a tokenizer.json of another kind",
        [model_file("tokenizer/spiece.model", None),
         model_file("tokenizer/tokenizer.json", '{"model": {"type": "BPE"}}')],
        DATA_ERROR, "{DIR}/model/tokenizer/tokenizer.json: model.type: found \"BPE\", "
        "expected \"Unigram\""),
    row("a tokenizer with more ids than the text encoder",
        config("tokenizer", "extra_ids", 1000), DATA_ERROR,
        "{DIR}/model/tokenizer: found 1250 ids, expected at most 352"),
]

NAME = "proj_out.weight"
WEIGHTS = [
    row("an empty file of weights", weights(lambda blob: b""), DATA_ERROR,
        TRANSFORMER, "0 bytes, too short for a safetensors file"),
    row("weights cut off in the header", weights(lambda blob: blob[:100]), DATA_ERROR,
        TRANSFORMER, "truncated"),
    row("weights cut off in the data", weights(lambda blob: blob[:-1000]), DATA_ERROR,
        TRANSFORMER, "data_offsets"),
    row("weights cut off in the data", weights(lambda blob: blob[:-1000]), DATA_ERROR,
        TRANSFORMER, "data_offsets", ranks=3),
    row("a header of 2^63 bytes", length(1 << 63), DATA_ERROR, TRANSFORMER,
        "a header of 9223372036854775808 bytes, expected at most"),
    row("a header of 2^64 - 1 bytes", length((1 << 64) - 1), DATA_ERROR, TRANSFORMER,
        "a header of 18446744073709551615 bytes, expected at most"),
    row("a header of 0 bytes", length(0), DATA_ERROR, TRANSFORMER, "not a safetensors file"),
    row("a tensor beyond the end of the file",
        tensor(NAME, "data_offsets", lambda old: [old[0], 1 << 40]), DATA_ERROR, TRANSFORMER,
        NAME, "data_offsets"),
    row("a tensor whose end is before its beginning",
        tensor(NAME, "data_offsets", lambda old: old[::-1]), DATA_ERROR, TRANSFORMER, NAME,
        "data_offsets"),
    row("overlapping tensors",
        tensor(NAME, "data_offsets", lambda old: [0, old[1] - old[0]]), DATA_ERROR, TRANSFORMER,
        "tensors overlap"),
    row("a negative offset", tensor(NAME, "data_offsets", lambda old: [-4, old[1]]), DATA_ERROR,
        TRANSFORMER, NAME, "-4"),
    row("a tensor of 2^124 elements", tensor(NAME, "shape", [1 << 62, 1 << 62]), DATA_ERROR,
        TRANSFORMER, NAME),
    row("a tensor with more elements than bytes", tensor(NAME, "shape", [1 << 20, 1 << 10]),
        DATA_ERROR, TRANSFORMER, NAME, "bytes of data, expected"),
    row("a tensor of an unknown type", tensor(NAME, "dtype", "F33"), DATA_ERROR, TRANSFORMER, NAME,
        'dtype is "F33", expected a type such as "F32"'),
    row("a tensor of integers", tensor(NAME, "dtype", "I32"), DATA_ERROR, TRANSFORMER, NAME,
        "holds I32, expected F32, F16, BF16, F8_E4M3 or F8_E5M2"),
    row("a tensor of another shape", tensor(NAME, "shape", lambda old: [old[1], old[0]]),
        DATA_ERROR, TRANSFORMER, NAME, "has shape", "expected"),
    row("a missing tensor", header(lambda values: values.update(other=values.pop(NAME))),
        DATA_ERROR, "{DIR}/model/transformer", NAME, "is missing, expected shape"),
    row("a missing tensor", header(lambda values: values.update(other=values.pop(NAME))),
        DATA_ERROR, "{DIR}/model/transformer", NAME, "is missing, expected shape", ranks=3),
    row("an index that names `../../outside`", index_entry("../../outside.safetensors"),
        DATA_ERROR, INDEX, "weight_map names the file '../../outside.safetensors', expected"),
    row("an index that names an absolute path", index_entry("{DIR}/outside.safetensors"),
        DATA_ERROR, INDEX, "weight_map names the file '{DIR}/outside.safetensors', expected"),
    row("an index that names a file that is not there", index_entry("gone.safetensors"), NO_INPUT,
        "{DIR}/model/transformer/gone.safetensors: not found, expected by", INDEX),
]


def first_bytes(name, share):
    """The beginning of a file of tests/data."""
    content = (MEDIA / name).read_bytes()
    return content[:int(share * len(content))]


IMAGES = [
    row("no image for a checkpoint that begins from one",
        [*FROM_IMAGE, option("prompt.image")], USAGE,
        "prompt.image: clip 0 has none, expected one: the checkpoint in ",
        " makes videos from a first image", varies=True),
    row("an image for a checkpoint that makes videos from text",
        media("exact.png", "prompt.image"), USAGE,
        "prompt.image: clip 0 has '{DIR}/exact.png', expected none: the checkpoint in ",
        " takes no image, only prompt.video", varies=True),
    row("a video for a checkpoint that begins from an image",
        [*FROM_IMAGE, option("prompt.image"), *media("exact.mkv", "prompt.video")], USAGE,
        "prompt.video: clip 0 has '{DIR}/exact.mkv', expected none: the checkpoint in ",
        " takes no video, only prompt.image", varies=True),
    row("an image and a video",
        [*FROM_VIDEO, *media("exact.png", "prompt.image")], USAGE,
        "prompt.image: found '{DIR}/exact.png', and the video '{DIR}/exact.mkv'"),
    row("a height that its learned positions do not have",
        [*FROM_IMAGE, option("sample.height", 96)], USAGE,
        "sample.height", "clip 0 has 96 x 80 pixels", "expected 112 x 80"),
    row("a width that its learned positions do not have",
        [*FROM_IMAGE, option("sample.width", 96)], USAGE,
        "sample.width", "clip 0 has 112 x 96 pixels", "expected 112 x 80"),
    row("a number of frames that its learned positions do not have",
        [*FROM_IMAGE, option("sample.frames", 13)], USAGE,
        "sample.frames", "13 frames, expected 112 x 80 and 9"),
    row("no such image", [*FROM_IMAGE, option("prompt.image", "{DIR}/none.png")], NO_INPUT,
        "prompt.image: {DIR}/none.png: cannot be opened"),
    row("no such image", [*FROM_IMAGE, option("prompt.image", "{DIR}/none.png")], NO_INPUT,
        "prompt.image: {DIR}/none.png: cannot be opened", ranks=3),
    row("a path longer than the system takes as image",
        [*FROM_IMAGE, option("prompt.image", LONG_NAME)], NO_INPUT, "prompt.image: xxx",
        "cannot be opened: File name too long"),
    row("a folder as image", [*FROM_IMAGE, option("prompt.image", "{DIR}")], DATA_ERROR,
        "prompt.image: {DIR}: not a regular file"),
    row("a text as image", [*FROM_IMAGE, file("image.png", "none"),
                            option("prompt.image", "{DIR}/image.png")], DATA_ERROR,
        "prompt.image: {DIR}/image.png: not an image that is read, expected PNG, JPEG, WebP"),
    row("an image that ends early",
        [*FROM_IMAGE, file("image.png", first_bytes("exact.png", 0.6)),
         option("prompt.image", "{DIR}/image.png")], DATA_ERROR,
        "prompt.image: {DIR}/image.png: damaged PNG file"),
    row("an image that ends early",
        [*FROM_IMAGE, file("image.png", first_bytes("exact.png", 0.6)),
         option("prompt.image", "{DIR}/image.png")], DATA_ERROR, "{DIR}/image.png", ranks=3),
    row("an image in a line that is a number",
        [*FROM_IMAGE, option("prompt.image"), *prompts('{"prompt": "one", "image": 5}\n')],
        USAGE, "{DIR}/prompts.jsonl:1: image: found 5, expected a text"),
    row("an image in a line that is not there",
        [*FROM_IMAGE, option("prompt.image"),
         *prompts('{"prompt": "one", "image": "/none/none.png"}\n')],
        NO_INPUT, "{DIR}/prompts.jsonl:1: image: /none/none.png: cannot be opened"),
]

VIDEOS = [
    row("`--sample.strength 0`", [*FROM_VIDEO, option("sample.strength", "0")], USAGE,
        "--sample.strength: found '0', expected a number above 0"),
    row("`--sample.strength 1.1`", [*FROM_VIDEO, option("sample.strength", "1.1")], USAGE,
        "--sample.strength: found '1.1', expected "),
    row("`--sample.strength nan`", [*FROM_VIDEO, option("sample.strength", "nan")], USAGE,
        "--sample.strength: found 'nan', expected "),
    row("a strength that leaves no step", [*FROM_VIDEO, option("sample.strength", "0.2")],
        USAGE, "sample.strength: found 0.2 for clip 0, which leaves none of 4 steps, expected "),
    row("frames that do not fill patches in time",
        [model_of("v1_5"), *media("long.mkv", "prompt.video"), option("sample.frames", 9)], USAGE,
        "clip 0 uses 9 frames, which are 3 latent frames, expected a multiple of 2"),
    row("more frames than the video has", [*FROM_VIDEO, option("sample.frames", 13)],
        DATA_ERROR, "prompt.video: {DIR}/exact.mkv has 9 frames, expected at least 13"),
    row("no such video", [*FROM_VIDEO, option("prompt.video", "{DIR}/none.mp4")], NO_INPUT,
        "prompt.video: {DIR}/none.mp4: cannot be opened"),
    row("a path longer than the system takes as video",
        [*FROM_VIDEO, option("prompt.video", LONG_NAME)], NO_INPUT, "prompt.video: xxx",
        "cannot be opened: File name too long"),
    row("a text as video", [*FROM_VIDEO, file("video.mp4", "none"),
                            option("prompt.video", "{DIR}/video.mp4")], DATA_ERROR,
        "prompt.video: {DIR}/video.mp4: not a video that is read"),
    row("a playlist as video",
        [*FROM_VIDEO, file("video.m3u8", "#EXTM3U\n#EXTINF:1,\nexact.mkv\n"),
         option("prompt.video", "{DIR}/video.m3u8")], DATA_ERROR,
        "prompt.video: {DIR}/video.m3u8: not a video that is read"),
    row("a video that ends early",
        [*FROM_VIDEO, file("video.mkv", first_bytes("exact.mkv", 0.5)),
         option("prompt.video", "{DIR}/video.mkv")], DATA_ERROR,
        "prompt.video: {DIR}/video.mkv: damaged or truncated video"),
    row("a clip of a job that is not there",
        [*FROM_VIDEO, option("prompt.video", "{DIR}/job.h5:3")], NO_INPUT,
        "prompt.video: {DIR}/clips/000003.h5: file not found"),
    row("a clip that a job has not made", [*FROM_VIDEO, file("job.h5", "none"),
                                           option("prompt.video", "{DIR}/job.h5:0")],
        NO_INPUT, "prompt.video: {DIR}/clips/000000.h5: file not found"),
    row("a file of weights as a clip",
        [*FROM_VIDEO, file("000000.h5", first_bytes("reference.safetensors", 0.01)),
         option("prompt.video", "{DIR}/000000.h5")], DATA_ERROR,
        "prompt.video: {DIR}/000000.h5: found a file that HDF5 cannot open"),
]


def earlier_output(case):
    case.output.mkdir()
    (case.output / "precious").write_text("mine")


def output_link(name):
    """In the output folder, with files beside it that the link leads to."""
    def change(case):
        case.output.mkdir()
        (case.folder / "others").mkdir()
        (case.folder / "others" / "000000.spans").write_text("mine")
        (case.output / name).symlink_to(case.folder / "others")
    return change


JOBS = [
    row("a folder with files of others, `resume`",
        [earlier_output, option("output.if-exists", "resume")], CANNOT_CREATE,
        "output folder {DIR}/output is not empty and not of a job: found precious and no job.h5",
        remains="the earlier files"),
    row("a link `trace` in the output folder, `replace`",
        [output_link("trace"), option("output.if-exists", "replace")], CANNOT_CREATE,
        "output folder {DIR}/output: found the link trace, expected a folder",
        remains="the earlier files"),
    row("a link `.lock` in the output folder", output_link(".lock"), CANNOT_CREATE,
        "{DIR}/output/.lock: found a file, link or folder of this name that no job has written",
        remains="the earlier files"),
    row("an output folder with files", earlier_output, CANNOT_CREATE,
        "output folder {DIR}/output exists and is not empty; use --output.if-exists",
        remains="the earlier files"),
    row("a file in place of the output folder", file("output", "mine"), CANNOT_CREATE,
        "output folder {DIR}/output", remains="the earlier file"),
    row("a file in place of the output folder, `replace`",
        [file("output", "mine"), option("output.if-exists", "replace")], CANNOT_CREATE,
        "output folder {DIR}/output", remains="the earlier file"),
    row("an output folder below a file",
        [file("file", "mine"), option("output.path", "{DIR}/file/output")], CANNOT_CREATE,
        "output folder {DIR}/file/output", remains="the earlier file"),
    row("an output folder in `/proc`", option("output.path", "/proc/reelmesh/output"),
        CANNOT_CREATE, "/proc/reelmesh/output"),
    row("a path longer than the system takes as output folder",
        option("output.path", LONG_NAME), CANNOT_CREATE, "output folder xxx",
        "cannot be used: File name too long"),
    row("`--output.if-exists ask`", option("output.if-exists", "ask"), USAGE,
        "--output.if-exists: found 'ask', expected one of fail, resume, replace"),
    row("`--parallel.device-map 0-2`", option("parallel.device-map", "0-2"), USAGE,
        "--parallel.device-map: found '0-2', expected auto, ranges"),
    row("a device map with a layer that is not there", option("parallel.device-map", "0-7:0"),
        USAGE, "parallel.device-map", "found layers 0-7, expected 0 to 2"),
    row("a device map with a layer on two ranks", option("parallel.device-map", "0-2:0,1:0"),
        USAGE, "parallel.device-map", "found layer 1 on ranks 0 and 0, expected one rank"),
    row("a device map with a rank that is not there", option("parallel.device-map", "0-1:0,2:5"),
        UNAVAILABLE, "parallel.device-map", "found rank 5, expected 0 to 0"),
    row("a device map with a rank that is not there", option("parallel.device-map", "0-1:0,2:5"),
        UNAVAILABLE, "parallel.device-map", "found rank 5, expected 0 to 2", ranks=3),
    row("no such device map", option("parallel.device-map", "{DIR}/map.json"), NO_INPUT,
        "{DIR}/map.json"),
    row("a path longer than the system takes as device map",
        option("parallel.device-map", LONG_NAME + ".json"), NO_INPUT, "xxx.json",
        "cannot be opened: File name too long"),
    row("a device map that is a list",
        [file("map.json", "[]"), option("parallel.device-map", "{DIR}/map.json")], DATA_ERROR,
        "expected a JSON object"),
    row("a device map of a rank that is not there",
        [file("map.json", '{"": 3}'), option("parallel.device-map", "{DIR}/map.json")],
        UNAVAILABLE, "parallel.device-map", "3"),
    row("no such machine file", option("device.machine", "{DIR}/node.cfg"), NO_INPUT,
        "{DIR}/node.cfg"),
    row("a machine file with a rate of 0",
        [file("node.cfg", "[machine]\ndisk = 0\n"), option("device.machine", "{DIR}/node.cfg")],
        USAGE, "{DIR}/node.cfg:2: machine.disk"),
    row("a machine file with an unknown key",
        [file("node.cfg", "[link]\nnodes = 0 1e9 0\n"),
         option("device.machine", "{DIR}/node.cfg")], USAGE, "link.node?"),
    row("a machine file without times",
        [file("node.cfg", "[machine]\ncores = 8\n"), option("device.machine", "{DIR}/node.cfg")],
        DATA_ERROR, "[float32]", ranks=3),
    row("`--parallel.mode split` on 1 rank", option("parallel.mode", "split"), UNAVAILABLE,
        "parallel.mode = split needs at least 3 ranks"),
    row("more groups than ranks", option("parallel.replicas", 2), UNAVAILABLE,
        "parallel.*: ", "need 2 ranks, the job has 1"),
    row("speeds of more ranks", option("device.speeds", "1,2"), UNAVAILABLE,
        "device.speeds: found 2 speeds, expected 1, one for each rank"),
    row("memory limits of more ranks", option("device.memory-limit", "1GiB,1GiB"), UNAVAILABLE,
        "device.memory-limit: found 2 sizes, expected 1"),
    row("a memory limit that is too low", option("device.memory-limit", "57MiB"), UNAVAILABLE,
        "device.memory-limit", "57.00 MiB", varies=True),
    row("float16 on the CPU", option("numerics.dtype", "float16"), USAGE,
        "--numerics.dtype: found float16, expected float32 or bfloat16"),
    row("clips that need more memory than the host has",
        [option("sample.height", 16384), option("sample.width", 16384),
         option("sample.frames", 9)], UNAVAILABLE, "1 rank need ", " together, the host has ",
        varies=True),
    row("clips of more latents than can be planned",
        [option("sample.height", 16384), option("sample.width", 16384),
         option("sample.frames", 9985)], UNAVAILABLE,
        "clip 0 of 9985x16384x16384 has ", " latents, expected at most 134217728"),
] + [
    row(f"`ulimit -v {kib}`", limit(f"-v {kib}"), UNAVAILABLE,
        "the limit of address space (ulimit -v) is ", ", expected at least ", varies=True, **more)
    for kib, more in ((150000, {}), (200000, {}), (250000, {}), (300000, {}), (300000, {"ranks": 3}))
] + [
    row(f"`ulimit -d {kib}`", limit(f"-d {kib}"), UNAVAILABLE,
        "the limit of data (ulimit -d) is ", ", expected at least ", varies=True, **more)
    for kib, more in ((30000, {}), (40000, {}), (50000, {}), (50000, {"ranks": 3}))
] + [
    row("`ulimit -v 360000` and clips of 512 x 512 pixels",
        [limit("-v 360000"), option("sample.height", 512), option("sample.width", 512)],
        UNAVAILABLE,
        "the limit of address space (ulimit -v) is ", ", expected at least ", varies=True),
]

TABLE = {
    "Options": OPTIONS, "Job files": JOB_FILES, "Prompts": PROMPTS,
    "Parts of a checkpoint": PARTS, "Configs of a checkpoint": CONFIGS,
    "Weights of a checkpoint": WEIGHTS, "Images": IMAGES, "Videos": VIDEOS,
    "Output, ranks and memory": JOBS,
}
ROWS = [one for rows in TABLE.values() for one in rows]


@dataclasses.dataclass
class Tried:
    outcome: typing.Any
    changed: list  # what is different on disk
    errors: list  # the error messages
    folder: pathlib.Path
    output: list  # result files
    inspected: typing.Any = None  # the outcome of `reelmesh inspect`, if the model is bad

    def message(self):
        return self.errors[0].replace(str(self.folder), "DIR") if self.errors else ""


def try_row(number, given, folder):
    case = Case(folder / f"{number}")
    for change in given.change:
        change(case)
    before = case.files()
    outcome = execute(case.command(given.ranks))
    model = case.folder / "model"
    inspected = execute([PROGRAM, "inspect", model]) if model.is_dir() else None
    after = case.files()
    changed = sorted(str(path) for path in {**before, **after}
                     if before.get(path) != after.get(path))
    # Any line with this beginning is a message; other lines are of mpirun.
    errors = [line[len(ERROR):] for line in (outcome.errors + outcome.output).splitlines()
              if line.startswith(ERROR)]
    return Tried(outcome, changed, errors, case.folder, result_files(case.output),
                 inspected)


def try_all(folder):
    """Tries the rows of one rank several at a time, then the others one by one."""
    tried = {}
    numbered = list(enumerate(ROWS))
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        alone = [one for one in numbered if one[1].ranks == 1]
        for (number, _), result in zip(alone, pool.map(lambda one: try_row(*one, folder), alone)):
            tried[number] = result
    for number, given in numbered:
        if given.ranks > 1:
            tried[number] = try_row(number, given, folder)
    return [tried[number] for number, _ in numbered]


def cell(text):
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def shown(given, message):
    """The message of a row as in the table."""
    if given.varies:
        message = " … ".join(part.strip() for part in given.told).replace("{DIR}", "DIR")
    if len(message) > 300:
        message = message[:140] + " … " + message[-140:]
    return cell(message)


def markdown(tried):
    lines = [
        "# Bad inputs",
        "",
        "What `reelmesh run` says to bad inputs: written by `bad_inputs_test.py --table`, which "
        "also tests each row. There is one message, which begins with `reelmesh: error: `. `DIR` "
        "is a temporary folder; … stands for what depends on the machine or is long. Nothing is "
        "written to the disk; the last column says what was there before in place of the output.",
    ]
    results = iter(tried)
    for title, rows in TABLE.items():
        lines += ["", f"## {title}", "", "| given | ranks | exit status | message | on disk |",
                  "| --- | --- | --- | --- | --- |"]
        for one in rows:
            message = shown(one, next(results).message())
            lines.append(f"| {one.given} | {one.ranks} | {one.status} | {message} | {one.remains} |")
    return "\n".join(lines) + "\n"


class BadInputs(Scratch):
    def test_the_copied_model_works(self):
        case = Case(self.folder / "case")
        case.copy_model()
        outcome = execute(case.command(1))
        self.assertEqual(outcome.status, 0, outcome)

    def test_links_of_the_hubs_cache_work(self):
        case = Case(self.folder / "case")
        model = case.copy_model()
        cache = case.folder / "models--org--name"
        (cache / "blobs").mkdir(parents=True)
        snapshot = cache / "snapshots" / "0123"
        snapshot.parent.mkdir()
        model.rename(snapshot)
        for number, path in enumerate(sorted(p for p in snapshot.rglob("*") if p.is_file())):
            path.rename(cache / "blobs" / f"{number}")
            up = "../" * (len(path.relative_to(snapshot).parts) + 1)
            path.symlink_to(f"{up}blobs/{number}")
        (case.folder / "linked").symlink_to(snapshot)
        case.options |= {"model.path": case.folder / "linked", "sample.steps": 1}
        outcome = execute(case.command(1))
        self.assertEqual(outcome.status, 0, outcome)

    def test_table(self):
        self.assertGreaterEqual(len(ROWS), 60)
        tried = try_all(self.folder)
        for one, result in zip(ROWS, tried):
            with self.subTest(given=one.given, ranks=one.ranks):
                self.assertEqual(result.outcome.status, one.status, result.outcome)
                self.assertEqual(len(result.errors), 1, result.outcome)
                if one.ranks == 1:  # nothing else, not even a second line
                    self.assertEqual(result.outcome.errors, ERROR + result.errors[0] + "\n")
                self.assertEqual(result.outcome.output if one.ranks == 1 else "", "")
                for part in one.told:
                    self.assertIn(part.replace("{DIR}", str(result.folder)), result.errors[0])
                if result.inspected is not None:  # it says what `run` would say
                    self.assertEqual(result.inspected.status, one.status, result.inspected)
                    self.assertEqual(result.inspected.errors.count("\n"), 1, result.inspected)
                self.assertEqual(result.changed, [])
                self.assertEqual(result.output, [])
        committed = (HERE / "bad_inputs.md").read_text()
        self.assertEqual(committed.splitlines(), markdown(tried).splitlines(),
                         "write the file again: bad_inputs_test.py --table FILE")


if __name__ == "__main__":
    if "--table" in sys.argv:
        import tempfile
        with tempfile.TemporaryDirectory(prefix="reelmesh_") as scratch:
            text = markdown(try_all(pathlib.Path(scratch)))
        pathlib.Path(sys.argv[sys.argv.index("--table") + 1]).write_text(text)
    else:
        main()

"""Shared by the end-to-end tests: runs the program as users do, and reads its results.

The environment names the program (REELMESH_PROGRAM), mpirun (REELMESH_MPIRUN) and the source
folder (REELMESH_SOURCE). With REELMESH_BACKEND=cuda all runs compute on GPUs, or on emulated ones
if the program was built with them. With REELMESH_LONG=1 (tests/long) all variants run; otherwise
only the most common ones, as every mpirun takes time to start. Needs only the standard library,
numpy and h5py.
"""

import atexit
import collections
import dataclasses
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import numpy

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(TESTS), str(TESTS / "tools")]
import mpi  # noqa: E402
from tables import table  # noqa: E402

PROGRAM = os.environ["REELMESH_PROGRAM"]
MPIRUN = os.environ.get("REELMESH_MPIRUN", "mpirun")
LONG = bool(os.environ.get("REELMESH_LONG"))
only_long = unittest.skipUnless(LONG, "only in tests/long")  # decorates tests and classes
BACKEND = os.environ.get("REELMESH_BACKEND")  # not set: the CPU, even on machines with GPUs
DATA = pathlib.Path(os.environ["REELMESH_SOURCE"]) / "tests" / "data" / "cogvideox"
KINDS = ("sincos", "rotary", "v1_5")

# Hashes of weights are remembered here, not in the user's folder.
CACHE = tempfile.mkdtemp(prefix="reelmesh_cache_")
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)

ENVIRONMENT = {
    **mpi.environment(),
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "XDG_CACHE_HOME": CACHE,
}

ERROR = "reelmesh: error: "
WARNING = "reelmesh: warning: "


@dataclasses.dataclass
class Outcome:
    """Result of a run: exit status, standard output, standard error, seconds."""

    status: int
    output: str
    errors: str
    seconds: float

    def lines(self, beginning):
        return [line for line in self.errors.splitlines() if line.startswith(beginning)]

    def __str__(self):
        return f"status {self.status}\n--- output\n{self.output}\n--- errors\n{self.errors}"


def arguments(options):
    """Options as command-line arguments; a list repeats its option, one with None has no value."""
    words = []
    for key, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            words += [f"--{key}"] if one is None else [f"--{key}", str(one)]
    return words


def start(command, environment=None, **more):
    return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, text=True,
                            env={**os.environ, **ENVIRONMENT, **(environment or {})}, **more)


def programs_of(job, ranks):
    """Process ids of the ranks of a job in the order of their ranks. job: the process of mpirun, or
    of the program itself on one rank."""
    if ranks == 1:
        return [job]
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent != job:
                continue
            variables = dict(line.split(b"=", 1)
                             for line in (entry / "environ").read_bytes().split(b"\0") if line)
            found[int(variables[b"OMPI_COMM_WORLD_RANK"])] = int(entry.name)
        except (OSError, KeyError):
            continue  # the process has ended
    return [found[rank] for rank in sorted(found)]


def send(number, processes):
    """Sends a signal to those of the processes that exist."""
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def finish(process, began, timeout):
    """Waits for the process. After `timeout` seconds it is ended and the test fails."""
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # on which mpirun ends its ranks
        try:
            output, errors = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
        raise AssertionError(
            f"not finished after {timeout} s: {process.args}\n{output}\n{errors}") from None
    errors = errors and errors.replace("\0", "")  # ends messages of Open MPI 5's mpirun
    return Outcome(process.returncode, output, errors, time.monotonic() - began)


def left_behind(processes, seconds=30):
    """Those that have not ended. mpirun may end a little before the kernel is done with ranks that
    it has killed: waits for them."""
    end = time.monotonic() + seconds
    while True:
        left = [process for process in processes if pathlib.Path(f"/proc/{process}/exe").exists()]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


def execute(command, environment=None, timeout=60, folder=None):
    """folder: in which the command runs."""
    began = time.monotonic()
    process = start(command, environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    cwd=folder)
    return finish(process, began, timeout)


def says_type(options):
    """Whether the options, their job file or the earlier job say which type is computed in."""
    config = pathlib.Path(options.get("config", ""))
    return ("numerics.dtype" in options or "from" in options or config.is_file()
            and re.search(r"^dtype\b", config.read_text(), re.MULTILINE) is not None)


def command_of(options, ranks=1, name="run"):
    """The command `reelmesh run`, or another one, on this number of ranks; without mpirun for one
    rank."""
    launcher = [MPIRUN, "-n", ranks] if ranks > 1 else []
    options = {"device.backend": BACKEND or "cpu"} | options
    if BACKEND and not says_type(options):  # of which the program would warn on GPUs
        options["numerics.dtype"] = "float32"
    return launcher + [PROGRAM, name] + arguments(options)


def run(options, ranks=1, environment=None, timeout=300 if BACKEND else 60, name="run"):
    return execute(command_of(options, ranks, name), environment, timeout)


def launch(*commands):
    """The command that runs one job with a command of its own for each rank. Not mpirun's own way,
    with colons between them: mpirun of Debian 13 (Open MPI 5.0.7) crashes then."""
    cases = [f"{rank}) exec {shlex.join(str(word) for word in command)} ;;"
             for rank, command in enumerate(commands)]
    return [MPIRUN, "-n", len(commands), "sh", "-c",
            f"case $OMPI_COMM_WORLD_RANK in {' '.join(cases)} esac"]


def run_unlike(options, environments, environment=None, timeout=120):
    """One job with a rank for each of `environments`, its own environment variables."""
    return execute(launch(*(["env", *(f"{name}={value}" for name, value in own.items()),
                             *command_of(options)] for own in environments)),
                   environment, timeout)


class Scratch(unittest.TestCase):
    """A test with an empty temporary folder."""

    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reelmesh_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def plan(self, options, *own, command=()):
        """command: ("compare",), ("simulate", out)."""
        return execute([PROGRAM, "plan", *command] + arguments(options)
                       + [str(word) for word in own])

    def planned(self, options, *own, command=()):
        """The JSON of a plan that has to succeed."""
        outcome = self.plan(options, "--json", *own, command=command)
        self.assertEqual(outcome.status, 0, outcome)
        expected = re.compile(r"\d+ prompts? from |.* frames.*, of which the model makes ")
        self.assertEqual([line for line in outcome.errors.splitlines()
                          if not expected.match(line)], [], outcome)
        return json.loads(outcome.output)

    def make(self, options, ranks=1, environment=None):
        """Runs the program, which must succeed. Returns the output folder."""
        outcome = run(options, ranks, environment)
        self.assertEqual(outcome.status, 0, f"{ranks} ranks, {options}\n{outcome}")
        self.assertEqual(outcome.lines(ERROR), [], outcome)
        return pathlib.Path(options["output.path"])


class Reference:
    """A tiny checkpoint of tests/data with the results of the reference pipeline."""

    def __init__(self, kind):
        self.kind = kind
        self.model = DATA / kind
        self.facts = json.loads((self.model / "reference.json").read_text())
        self.tensors = read_safetensors(self.model / "reference.safetensors")
        self.bf16 = json.loads((DATA / "bf16_errors.json").read_text())[kind]

    def options(self, output, **more):
        """Options shared by all clips of this reference, updated by `more`, in whose keys '__'
        stands for '.' and '_' for '-'."""
        frames = len(self.tensors["clip0.video_frames"])  # num_frames, as the model rounds them
        return options_of(self.model, self.facts, frames, output, more)

    def prompt_file(self, folder):
        """Writes prompts, negative prompts and seeds of the clips to a file for prompt.file."""
        path = pathlib.Path(folder) / f"{self.kind}.jsonl"
        keys = ("prompt", "negative_prompt", "seed")
        lines = [json.dumps({key: clip[key] for key in keys}) for clip in self.facts["clips"]]
        path.write_text("\n".join(lines) + "\n")
        return path

    def prompts(self):
        return [clip["prompt"] for clip in self.facts["clips"]]


def options_of(model, facts, frames, output, more):
    options = {
        "model.path": model,
        "sample.height": facts["height"],
        "sample.width": facts["width"],
        "sample.frames": frames,
        "sample.steps": facts["steps"],
        "sample.guidance": facts["guidance"],
        "sample.dynamic-guidance": "yes" if facts["dynamic_guidance"] else "no",
        "output.path": output,
    }
    return options | {key.replace("__", ".").replace("_", "-"): v for key, v in more.items()}


def relative(values, reference):
    """The largest error, divided by the largest expected value."""
    return numpy.abs(values - reference).max() / numpy.abs(reference).max()


def rms(values, reference):
    return numpy.sqrt(numpy.mean((values.astype(numpy.float64) - reference) ** 2))


def check_bfloat16_errors(test, name, torch, latents, expected_latents, video, expected_video):
    """A clip in bfloat16 is at most 1.5 times as far from the reference in float32 as PyTorch's own
    in bfloat16. torch: errors of PyTorch, as the reference data has them."""
    error = rms(latents, expected_latents) / numpy.abs(expected_latents).max()
    levels = rms(video, expected_video)
    print(f"{name}, bfloat16 against PyTorch's own: latents {error / torch['latents']['rms']:.2f}, "
          f"video {levels / torch['video_levels']['rms']:.2f}")
    test.assertLessEqual(error, 1.5 * torch["latents"]["rms"])
    test.assertLessEqual(levels, 1.5 * torch["video_levels"]["rms"])
    test.assertGreater(error, 1e-5)  # it really was computed in bfloat16


def read_header(path):
    """(header, bytes after it) of a .safetensors file."""
    blob = pathlib.Path(path).read_bytes()
    length = int.from_bytes(blob[:8], "little")
    return json.loads(blob[8:8 + length]), blob[8 + length:]


def read_safetensors(path):
    """Name -> array. Bfloat16, which numpy lacks, becomes float32."""
    header, data = read_header(path)
    header.pop("__metadata__", None)
    types = {"F32": numpy.float32, "F16": numpy.float16, "BF16": numpy.uint16,
             "I64": numpy.int64, "I32": numpy.int32, "U8": numpy.uint8}
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = numpy.frombuffer(data[begin:end], types[entry["dtype"]])
        if entry["dtype"] == "BF16":
            values = (values.astype(numpy.uint32) << 16).view(numpy.float32)
        assert values.size == math.prod(entry["shape"]), name
        arrays[name] = values.reshape(entry["shape"])
    return arrays


def write_header(path, header, data):
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def flip_bit(path, place):
    """Changes the lowest bit of the byte at this place of a file; its size stays."""
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def clip_file(output, index=0):
    folder = "" if index < 10_000 else f"{index // 1000:03}"
    return pathlib.Path(output) / "clips" / folder / f"{index:06}.h5"


def read_clip(output, index=0):
    """Datasets of a clip as arrays, and its attributes under 'attributes'."""
    with h5py.File(clip_file(output, index), "r") as file:
        clip = {name: dataset[()] for name, dataset in file.items()}
        clip["attributes"] = read_attributes(file)
    return clip


def read_attributes(item):
    """Attributes as a dict."""
    return dict(item.attrs)


def check_all_time_is_in_spans(test, output):
    """Of the time from the start of the first rank to the last span, at most 2 % is in no span.

    A busy machine stops a rank at any place, also between two spans. So for each pair of spans that
    follow each other the median of the times between them counts for all of that pair. A pair that
    occurs once may have 1 % by itself, or 0.1 s.
    """
    with h5py.File(output / "trace.h5") as file:
        spans = table(file, "spans")
    end = spans["start_ns"] + spans["duration_ns"]
    between, ranks = collections.defaultdict(list), sorted(set(spans["rank"]))
    for rank in ranks:
        mine = numpy.flatnonzero(spans["rank"] == rank)
        mine = mine[numpy.lexsort((-spans["duration_ns"][mine], spans["start_ns"][mine]))]
        test.assertEqual(spans["name"][mine[0]], b"prepare", rank)  # from the start of the process
        before, reached = "first", spans["start_ns"].min()
        for i in mine:
            name = spans["name"][i].decode()
            if end[i] > reached:
                between[before, name].append(max(0, int(spans["start_ns"][i] - reached)))
                before, reached = name, end[i]
        between[before, "last"].append(int(end.max() - reached))
    whole = int(end.max() - spans["start_ns"].min())
    once = {pair: times[0] for pair, times in between.items() if len(times) == 1}
    test.assertEqual({pair: ns for pair, ns in once.items()
                      if ns > max(100_000_000, 0.01 * whole)}, {})
    left = {pair: len(times) * statistics.median_low(times) for pair, times in between.items()
            if len(times) > 1}
    test.assertLessEqual(sum(left.values()) / len(ranks) / whole, 0.02, left)


def names_of_states(rows):
    """Of rows of /states in job.h5: "missing", "saved", "failed", "complete" or "preview" of each."""
    return [("missing", "saved", "failed", "complete", "preview")[state] for state in rows["state"]]


def job_status(output):
    """The attribute `status` of job.h5."""
    with h5py.File(pathlib.Path(output) / "job.h5") as file:
        return file.attrs["status"]


def trace_complete(output):
    with h5py.File(pathlib.Path(output) / "trace.h5") as file:
        return bool(file.attrs["complete"])


def state_of(folder):
    """Files below a folder -> (mtime, inode), which change if a file is written again."""
    return {path: (path.lstat().st_mtime_ns, path.lstat().st_ino)
            for path in pathlib.Path(folder).rglob("*") if not path.is_dir()}


def result_files(output):
    """Files under their final names: index and trace (unless they say that the job is not finished)
    and clips."""
    output = pathlib.Path(output)
    finished = {"job.h5": lambda: job_status(output) != "unfinished",
                "trace.h5": lambda: trace_complete(output)}
    found = [path for name, is_finished in finished.items() for path in output.glob(name)
             if is_finished()]
    return found + sorted((output / "clips").glob("[0-9]*"))


def main():
    unittest.main(verbosity=2)

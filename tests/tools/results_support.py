"""Result files as reelmesh writes them, of any size, for tests of the tools and of their limits.

    results_support.py OUT [--clips N] [--spans N] [--ranks N]
"""
import argparse
import json
import pathlib
import struct
import sys

import h5py
import numpy as np
from tables import write_table

TEXT = h5py.string_dtype("utf-8")
BOOL = h5py.enum_dtype({"FALSE": 0, "TRUE": 1}, basetype="i1")
STATE = h5py.enum_dtype({"MISSING": 0, "SAVED": 1, "FAILED": 2, "COMPLETE": 3, "PREVIEW": 4},
                        basetype="i1")
DIRECTION = h5py.enum_dtype({"SEND": 0, "RECEIVE": 1}, basetype="i1")
COUNTERS = ["HOST_ACTIVATIONS", "HOST_WEIGHTS", "HOST_WORKSPACE", "HOST_EXCHANGE", "HOST_QUEUE",
            "DEVICE_ACTIVATIONS", "DEVICE_WEIGHTS", "DEVICE_WORKSPACE", "DEVICE_EXCHANGE",
            "DEVICE_QUEUE", "BYTES_SENT", "CLIPS_WAITING"]
COUNTER = h5py.enum_dtype({name: i for i, name in enumerate(COUNTERS)}, basetype="i1")


def letters(length):
    return h5py.string_dtype("utf-8", length)


SPAN = np.dtype([("rank", "i4"), ("lane", letters(16)), ("name", letters(48)), ("clip", "i4"),
                 ("step", "i4"), ("layer", "i4"), ("start_ns", "i8"), ("duration_ns", "i8"),
                 ("bytes", "i8"), ("flops", "i8"), ("memory_bytes", "i8")])
MESSAGE = np.dtype([("rank", "i4"), ("peer", "i4"), ("direction", DIRECTION), ("clip", "i4"),
                    ("step", "i4"), ("layer", "i4"), ("start_ns", "i8"), ("duration_ns", "i8"),
                    ("bytes", "i8"), ("channel", "i8"), ("number", "i8")])
SAMPLE = np.dtype([("rank", "i4"), ("counter", COUNTER), ("time_ns", "i8"), ("value", "i8"),
                   ("max", "i8")])
RANK = np.dtype([("rank", "i4"), ("host", letters(64)), ("role", letters(32)),
                 ("device", letters(64)), ("threads", "i4"), ("peak_memory_bytes", "i8"),
                 ("peak_device_memory_bytes", "i8"), ("clock_offset_ns", "i8"),
                 ("padded_products", "i8"), ("kernels", letters(160)), ("clock_drift_ppb", "i8"),
                 ("memory_limit_bytes", "i8"), ("predicted_memory_bytes", "i8"),
                 ("peak_flops_per_s", "f8"), ("peak_memory_bytes_per_s", "f8")])
MEMORY = np.dtype([("rank", "i4"), ("place", letters(12)), ("purpose", letters(16)),
                   ("peak_bytes", "i8"), ("bytes_at_peak", "i8")])
STATES = np.dtype([("clip", "i4"), ("state", STATE), ("reason", letters(112))])


def moving_square(frames, height, width, clip):
    """A video uint8 [frame, height, width, 3]: a square moves over a field."""
    video = np.empty((frames, height, width, 3), np.uint8)
    video[:] = (20 + clip * 7 % 200, 60, 90)
    side = max(2, height // 4)
    for t in range(frames):
        left = t * (width - side) // max(1, frames - 1)
        video[t, height // 3:height // 3 + side, left:left + side] = (230, 210, clip * 53 % 256)
    return video


def clip_name(number):
    within = "" if number < 10_000 else f"{number // 1000:03}/"
    return f"clips/{within}{number:06}.h5"


def write_clip(folder, number, video, prompt="a square moves to the right", seed=None, fps=8.0,
               **attributes):
    path = folder / clip_name(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        frames, height, width = video.shape[:3]
        file.create_dataset("video", data=video, chunks=(1, *video.shape[1:]), shuffle=True,
                            compression=1, fletcher32=True)
        noise = np.random.default_rng(number)
        latents = noise.standard_normal((1 + frames // 4, 4, max(1, height // 8),
                                         max(1, width // 8)), np.float32)
        file.create_dataset("latents", data=latents, chunks=(1, *latents.shape[1:]))
        file["token_ids"] = np.arange(8, dtype=np.int32)
        file["time"] = np.arange(frames) / fps
        file.attrs.update({"format_version": 1, "prompt": prompt, "negative_prompt": "",
                           "seed": np.uint64(42 + number if seed is None else seed), "steps": 20,
                           "guidance": 3.0, "fps": fps, "model": "inputs/demo_model",
                           "scheduler": "CogVideoXDDIMScheduler", "dtype": "float32",
                           "layout": "replica 0: rank 0", "fingerprint": "model 0123456789abcdef",
                           "wall_seconds": 1.5, "Conventions": "CF-1.8"} | attributes)


def write_index(folder, requests, states=None, status="complete", trace=True, **attributes):
    """states: clip → (state, reason); complete where it is not given."""
    folder.mkdir(parents=True, exist_ok=True)
    names = h5py.check_enum_dtype(STATE)
    with h5py.File(folder / "job.h5", "w") as file:
        file.attrs.update({
            "format_version": 2, "title": "a job", "program": "reelmesh", "version": "0.1.0",
            "git_revision": "0123456789ab", "options": "model.path = inputs/demo_model\n",
            "plan": "1 rank on 1 host, CPU with 1 thread each; phased: all ranks do each stage in "
                    "turn\n",
            "plan_json": json.dumps({"ranks": 1}),
            "start": "2026-01-31T12:00:00Z", "end": "2026-01-31T12:10:00Z", "status": status}
            | attributes)
        file.attrs.create("hosts", ["node-a", "node-b"], dtype=TEXT)
        rows = np.zeros(len(requests), STATES)
        for i in range(len(requests)):
            state, reason = (states or {}).get(i, ("complete", ""))
            rows[i] = (i, names[state.upper()], reason.encode())
            if state in ("complete", "preview") or status == "unfinished":
                file[f"clips/{i:06}"] = h5py.ExternalLink(clip_name(i), "/")
        file.require_group("clips")
        write_table(file, "states", rows)
        file.create_dataset("requests", data=[json.dumps(one) for one in requests], dtype=TEXT)
        if trace:
            file["trace"] = h5py.ExternalLink("trace.h5", "/")
        provenance = file.create_group("provenance")
        provenance.attrs.update({
            "working_folder": "/home/user", "job_file": "", "git_revision": "0123456789ab",
            "compiler": "GNU 12.2.0", "compiler_flags": "-O3", "build_type": "Release",
            "model_path": "/home/user/inputs/demo_model", "weights_hash": "0123456789abcdef"})
        provenance.attrs.create("git_changed", 0, dtype="i1")
        for name, words in (("command", ["reelmesh", "run"]), ("options_given", []),
                            ("libraries", ["Open MPI 4.1.4", "HDF5 1.10.8"]), ("environment", []),
                            ("slurm", ["SLURM_JOB_ID=17"])):
            provenance.attrs.create(name, words, shape=(len(words),), dtype=TEXT)


def steps_of(ranks, count, clips, level="ops"):
    """About `count` spans of `ranks` ranks, a block for each rank: steps, in each 8 layers, in
    each 6 operations. Each rank makes every ranks-th clip."""
    per_step = 1 + 8 * (1 + 6)
    steps = max(1, count // (ranks * per_step))
    operations = [("product", "compute", 9_000, 40_000_000, 300_000),
                  ("norm", "compute", 1_000, 60_000, 400_000),
                  ("attention", "compute", 6_000, 20_000_000, 200_000),
                  ("exchange", "exchange", 2_000, 0, 0),
                  ("product", "compute", 8_000, 40_000_000, 300_000),
                  ("norm", "compute", 1_000, 60_000, 400_000)]  # with ns, FLOPs, bytes of memory
    layer_ns = sum(one[2] for one in operations) + 2_000
    step_ns = 8 * layer_ns + 5_000
    one = np.zeros(per_step, SPAN)
    one[0] = (0, b"compute", b"denoise_step", 0, 0, -1, 0, step_ns, 64_000,
              8 * 100_000_000, 0)
    row = 1
    for layer in range(8):
        at = 2_000 + layer * layer_ns
        one[row] = (0, b"compute", b"transformer_block", 0, 0, layer, at, layer_ns - 500, 8_000,
                    100_000_000, 0)
        row, at = row + 1, at + 500
        for name, lane, duration, flops, memory in operations:
            one[row] = (0, lane.encode(), name.encode(), 0, 0, layer, at, duration,
                        8_000 if lane == "exchange" else 0, flops, memory)
            row, at = row + 1, at + duration
    for rank in range(ranks):
        rows = np.tile(one, steps)
        number = np.repeat(np.arange(steps), per_step)
        jitter = np.random.default_rng(rank).integers(0, 4_000, steps)
        rows["rank"] = rank
        rows["step"] = number % 20
        rows["clip"] = (number // 20 * ranks + rank) % max(1, clips)
        rows["start_ns"] += (np.arange(steps) * (step_ns + 4_000) + jitter)[number] + 50 * rank
        yield rows


def write_trace(folder, ranks=4, spans=2000, clips=2, complete=True, **attributes):
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "trace.h5", "w") as file:
        file.attrs.update({"format_version": 2, "title": "a trace", "level": "ops",
                           "start": "2026-01-31T12:00:01Z"} | attributes)
        file.attrs.create("complete", int(complete), dtype="i1")
        rows = np.concatenate(list(steps_of(ranks, spans, clips)))
        write_table(file, "spans", rows)
        end = int(rows["start_ns"][-1] + rows["duration_ns"][-1])
        rank = np.zeros(ranks, RANK)
        for i in range(ranks):
            host = f"node-{'ab'[i * 2 // ranks]}".encode()
            rank[i] = (i, host, b"text+denoise+decode", b"cpu", 1,
                       90_000_000, 0, 100 * i, 0, b"", i, 200_000_000, 95_000_000, 5e10, 1e10)
        write_table(file, "ranks", rank)
        write_table(file, "memory", np.array([(i, b"host", name, 4_000_000 * (k + 1), 3_000_000 * (k + 1))
                                       for i in range(ranks) for k, name in
                                       enumerate((b"activations", b"weights", b"workspace",
                                                  b"exchange", b"queue"))], MEMORY))
        times = np.linspace(0, end, 50).astype(np.int64)
        write_table(file, "counters", np.array([(i, k, t, (k + 1) * 1_000_000 + n * 10_000,
                                          (k + 1) * 1_000_000 + n * 20_000)
                                         for i in range(ranks) for n, t in enumerate(times)
                                         for k in (0, 1, 10)], SAMPLE))
        pairs = []
        for n, t in enumerate(times if ranks > 1 else []):
            for i in range(ranks):
                peer = (i + 1) % ranks
                pairs += [(i, peer, 0, 0, n, 0, t, 1500, 8_000, 7, n),
                          (peer, i, 1, 0, n, 0, t + 500, 1800, 8_000, 7, n)]
        messages = np.array(pairs, MESSAGE)
        write_table(file, "messages",
                    messages[np.lexsort((messages["start_ns"], messages["rank"]))])


def write_job(folder, clips=2, ranks=4, spans=2000, frames=9, height=64, width=64, states=None,
              **attributes):
    """A whole output folder. attributes: of job.h5."""
    requests = [{"prompt": f"a square moves to the right, {i}", "negative_prompt": "",
                 "seed": 42 + i, "height": height, "width": width, "frames": frames, "fps": 8.0,
                 "steps": 20, "guidance": 3.0} for i in range(clips)]
    for i in range(clips):
        if (states or {}).get(i, ("complete",))[0] == "complete":
            write_clip(folder, i, moving_square(frames, height, width, i), requests[i]["prompt"])
    write_trace(folder, ranks, spans, clips)
    write_index(folder, requests, states, **attributes)


def write_metrics(folder, loss, gradient_norm=None, learning_rate=None, seconds=None, samples=None,
                  validations=None):
    """Columns that are not given are 0.5, 1e-4 and 2 s. NaN in `seconds`: a row that is lost.
    samples: number, timestep and loss, each [step, place]. validations: steps, timesteps and loss
    [validation, timestep]. Without: a file of an earlier version, or without validation."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = {"loss": loss, "gradient_norm": gradient_norm, "learning_rate": learning_rate,
               "seconds": seconds}
    others = {"gradient_norm": 0.5, "learning_rate": 1e-4, "seconds": 2.0}
    with h5py.File(folder / "metrics.h5", "w") as file:
        file.attrs.update({"format_version": 1, "title": f"{len(loss)} steps of a training"})
        for name, values in columns.items():
            if values is None:
                values = np.full(len(loss), others[name])
            file.create_dataset(name, data=np.asarray(values, np.float64), chunks=(len(loss),),
                                fletcher32=True)
        file["step"] = np.arange(len(loss), dtype=np.int32)
        for names, arrays in ((("sample", "timestep", "sample_loss"), samples),
                              (("validation_step", "validation_timestep", "validation_loss"),
                               validations)):
            for name, values in zip(names, arrays or ()):
                file[name] = np.asarray(values, float if name.endswith("loss") else np.int32)
        if samples is not None:
            file["timestep"].attrs["timesteps"] = 1000


def write_safetensors(path, tensors):
    """tensors: name → float32 array."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors.items():
        begin, end = end, end + values.nbytes
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text
                     + b"".join(values.tobytes() for values in tensors.values()))


def write_lora(folder, seed=0, blocks=2, rank=4, width=16):
    """lora/pytorch_lora_weights.safetensors of random numbers."""
    noise = np.random.default_rng(seed)
    tensors = {}
    for block in range(blocks):
        for layer in ("to_q", "to_v"):
            name = f"transformer.transformer_blocks.{block}.attn1.{layer}"
            for matrix, shape in (("lora_A", (rank, width)), ("lora_B", (width, rank))):
                tensors[f"{name}.{matrix}.weight"] = noise.standard_normal(shape, np.float32)
    write_safetensors(folder / "lora/pytorch_lora_weights.safetensors", tensors)
    return tensors


def write_sample(folder, number, prompt="a square jumps", file="clips/000.mkv"):
    """An encoded sample in cache/, which job.h5 links."""
    (folder / "cache").mkdir(parents=True, exist_ok=True)
    name = f"cache/{number:032x}.h5"
    with h5py.File(folder / name, "w") as cached:
        cached.create_dataset("latent_mean", data=np.zeros((3, 4, 8, 8), np.float32),
                              chunks=(1, 4, 8, 8))
        cached.attrs.update({"format_version": 1, "title": "a sample", "file": file,
                             "hash": "0123456789abcdef"})
    with h5py.File(folder / "job.h5", "a") as job:
        samples = job.require_group("samples")
        samples.pop(f"{number:06}", None)
        sample = samples.create_group(f"{number:06}")
        sample.attrs.update({"prompt": prompt, "file": file})
        sample["latent_mean"] = h5py.ExternalLink(name, "/latent_mean")


TRAINING = {"model.path": "inputs/demo_model", "data.path": "clips", "data.shuffle": "yes",
            "train.method": "lora", "train.steps": "500", "train.batch": "2", "train.seed": "42",
            "train.learning-rate": "1e-4", "train.clip": "1.0", "lora.rank": "8",
            "lora.alpha": "4", "lora.targets": "to_q,to_k,to_v,to_out.0",
            "trace.level": "stages"}


def write_training(folder, steps=500, samples=3, options=None, status="complete", trace=True,
                   seed=0):
    """The whole output folder of a training, with a loss that falls."""
    noise, step = np.random.default_rng(seed), np.arange(steps)
    loss = (0.12 + 0.3 * np.exp(-step / 90)) * noise.lognormal(-0.1, 0.45, steps)
    norm = (0.25 + 1.1 * np.exp(-step / 60)) * noise.lognormal(0, 0.3, steps)
    rate = 1e-4 * np.minimum(1, step / 50) * 0.5 * (1 + np.cos(np.pi * step / 500))
    took = 3.2 + 0.15 * noise.standard_normal(steps) + 5 * (step == 0)
    timestep = noise.integers(0, 1000, (steps, 2))
    apart = 0.3 * loss * (timestep[:, 0] - timestep[:, 1]) / 1000
    validated = np.array([*range(0, steps, 50), steps])
    write_metrics(folder, loss, norm, rate, took, samples=(
        noise.integers(0, samples, (steps, 2)), timestep, np.stack([loss + apart, loss - apart], 1)),
        validations=(validated, (125, 375, 625, 875), np.outer(
            0.12 + 0.3 * np.exp(-validated / 90), (1.6, 0.7, 0.7, 1.0))))
    write_lora(folder, seed)
    if trace:
        write_trace(folder, 2, 300, 1)
    lines = "".join(f"{key} = {value}\n" for key, value in (TRAINING | (options or {})).items())
    write_index(folder, [], status=status, trace=trace, options=lines)
    for number in range(samples):
        write_sample(folder, number, f"a red square jumps, {number}", f"clips/{number:03}.mkv")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    for option, value in (("--clips", 2), ("--spans", 2000), ("--ranks", 4)):
        parser.add_argument(option, type=int, default=value)
    chosen = parser.parse_args()
    write_job(chosen.out, chosen.clips, chosen.ranks, chosen.spans)
    sys.exit()

"""Tensors of checkpoints, read one at a time and without executing code in the files."""
import json
import pathlib
import pickle
import zipfile

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

STEMS = ("diffusion_pytorch_model", "model", "pytorch_model")
PICKLES = (".bin", ".ckpt", ".pt", ".pth")
WRAPPERS = ("ema", "state_dict", "model")  # keys under which training scripts store the state dict


class Refusal(Exception):
    """An input that cannot be used; the message says why in one line."""


class Tensors:
    """The tensors of a checkpoint: shapes are known, values are read on demand."""

    def __init__(self, source):
        self.source, self.shapes, self._read = source, {}, {}

    def add(self, name, shape, read):
        if name in self.shapes:
            raise Refusal(f"{self.source}: tensor {name} is there twice")
        self.shapes[name], self._read[name] = tuple(shape), read

    def renamed(self, rule):
        """The same tensors under the names `rule(name)`, without those for which it is None."""
        result = Tensors(self.source)
        for name, shape in self.shapes.items():
            new = rule(name)
            if new is not None:
                result.add(new, shape, self._read[name])
        return result

    def reshaped(self, name, shape):
        read = self._read[name]
        self.shapes[name], self._read[name] = tuple(shape), lambda: read().reshape(shape)

    def read(self, name):
        value = self._read[name]()
        if tuple(value.shape) != self.shapes[name] or not value.is_floating_point():
            raise Refusal(f"{self.source}: tensor {name} is {value.dtype} {list(value.shape)}, expected floating-point "
                          f"numbers {list(self.shapes[name])}")
        if not torch.isfinite(value).all():
            raise Refusal(f"{self.source}: tensor {name} has values that are not finite")
        return value

    def check(self, expected):
        """Raises Refusal, naming the first few differences, unless names and shapes are exactly `expected`."""
        missing = sorted(set(expected) - set(self.shapes))
        surplus = sorted(set(self.shapes) - set(expected))
        wrong = [f"{n} {list(self.shapes[n])} instead of {list(expected[n])}"
                 for n in sorted(set(expected) & set(self.shapes)) if self.shapes[n] != tuple(expected[n])]
        for what, names in (("missing", missing), ("unexpected", surplus), ("of another shape", wrong)):
            if names:
                more = f" and {len(names) - 4} more" if len(names) > 4 else ""
                raise Refusal(f"{self.source}: {len(names)} tensors {what}: {', '.join(names[:4])}{more}")


def _add_safetensors(tensors, path):
    try:
        file = safe_open(path, "pt")
        for name in file.keys():
            tensors.add(name, file.get_slice(name).get_shape(), lambda name=name: file.get_tensor(name))
    except SafetensorError as error:
        raise Refusal(f"{path}: no safetensors file ({error})") from None


def _add_pickle(tensors, path):
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError:
        raise Refusal(f"{path}: holds more than tensors, or is damaged; nothing of it was run") from None
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise Refusal(f"{path}: cannot be read ({str(error).splitlines()[0]})") from None
    for wrapper in WRAPPERS:
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    if not isinstance(state, dict) or not state:
        raise Refusal(f"{path}: holds no state dict")
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise Refusal(f"{path}: entry {name!r} is {type(value).__name__}, expected a tensor")
        tensors.add(name.removeprefix("module."), value.shape, lambda value=value: value)


def find(folder):
    """The weights files of a folder: those in its index, or the single file."""
    for ending in (".safetensors", ".bin"):
        for stem in STEMS:
            index = folder / f"{stem}{ending}.index.json"
            if index.is_file():
                names = sorted(set(read_json(index).get("weight_map", {}).values()))
                if not names or any(pathlib.PurePath(n).name != n for n in names):
                    raise Refusal(f"{index}: 'weight_map' names no files of this folder")
                return [folder / n for n in names]
            if (folder / f"{stem}{ending}").is_file():
                return [folder / f"{stem}{ending}"]
    raise Refusal(f"{folder}: no weights; looked for {', '.join(STEMS)} with .safetensors or .bin, or an index")


def open_tensors(path):
    """The tensors of a file, or of a folder with a single file or an index."""
    path = pathlib.Path(path)
    if not path.exists():
        raise Refusal(f"{path}: does not exist")
    tensors = Tensors(path)
    for file in find(path) if path.is_dir() else [path]:
        if not file.is_file():
            raise Refusal(f"{file}: does not exist")
        if file.suffix == ".safetensors":
            _add_safetensors(tensors, file)
        elif file.suffix in PICKLES:
            _add_pickle(tensors, file)
        else:
            raise Refusal(f"{file}: expected .safetensors or {', '.join(PICKLES)}")
    return tensors


def read_json(path):
    try:
        value = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refusal(f"{path}: cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise Refusal(f"{path}: expected a JSON object")
    return value


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(folder, stem, tensors, dtype, shard_bytes):
    """Writes <stem>.safetensors, or shards with an index if larger than `shard_bytes`. Returns the number of bytes."""
    shards, size, total = [[]], 0, 0
    for name in sorted(tensors.shapes):
        bytes_ = _bytes(tensors.shapes[name], dtype)
        if shards[-1] and size + bytes_ > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += bytes_
    places = {}
    for i, names in enumerate(shards):
        file = f"{stem}-{i + 1:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else f"{stem}.safetensors"
        values = {n: tensors.read(n).to(dtype).clone(memory_format=torch.contiguous_format) for n in names}
        save_file(values, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)
        total += sum(v.nbytes for v in values.values())
        places.update({n: file for n in names})
    if len(shards) > 1:
        write_json(folder / f"{stem}.safetensors.index.json",
                   {"metadata": {"total_size": total}, "weight_map": places})
    return total


def _bytes(shape, dtype):
    return torch.Size(shape).numel() * (dtype.itemsize if dtype else 4)

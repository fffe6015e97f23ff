"""Reads what a training has written: metrics.h5 with a row for each step, and encoded samples."""
import numpy as np

from .hdf5 import Damaged, attributes, dataset, opened, read

# Columns of metrics.h5 in the order in which a step computes them.
COMPUTED = ("loss", "gradient_norm", "learning_rate")
COLUMNS = (*COMPUTED, "seconds")


def metrics_of(folder):
    return folder / "metrics.h5"


def trained_of(folder):
    """The file of what was trained: of a transformer, if there is one, or of a LoRA."""
    transformer = folder / "transformer" / "diffusion_pytorch_model.safetensors"
    return transformer if transformer.exists() else folder / "lora" / "pytorch_lora_weights.safetensors"


def word_for(path):
    """What the file of trained_of() is."""
    return "transformer" if path.parent.name == "transformer" else "LoRA"


def metrics(folder):
    """Column → its values, float64 [step]. Rows that a killed training has lost are NaN. Raises
    Damaged."""
    with opened(metrics_of(folder)) as file:
        arrays = {name: dataset(file, name) for name in COLUMNS}
        for name, array in arrays.items():
            if array.dtype != np.float64 or len(array.shape) != 1:
                raise Damaged(f"{name} is {array.dtype} {list(array.shape)}, expected float64 "
                              "[step]")
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise Damaged(f"its columns have {lengths} rows, expected as many in each")
        return {name: read(array) for name, array in arrays.items()}


def lost(values):
    """Which rows of metrics() the training has lost, as bool [step]: each step that was done has
    its time."""
    return np.isnan(values["seconds"])


def sample_files(folder):
    """Number of the sample → its file among the encoded ones in the folder of the training; None if
    they are in another one (data.cache)."""
    cache = folder / "cache"
    if not cache.is_dir():
        return None
    return {int(path.stem): path for path in sorted(cache.glob("*.h5"))
            if path.stem.isdecimal() and path.stem == f"{int(path.stem):06}"}


def sample(path):
    """Prompt and video of an encoded sample. Raises Damaged."""
    with opened(path) as file:
        found = attributes(file)
    if "prompt" not in found or "file" not in found:
        raise Damaged("has no attributes prompt and file: not an encoded sample of reelmesh")
    return {"prompt": str(found["prompt"]), "file": str(found["file"])}

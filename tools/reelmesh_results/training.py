"""Reads what a training has written: metrics.h5 with a row for each step and each validation, and
encoded samples."""
import dataclasses

import h5py
import numpy as np

from .hdf5 import Damaged, attributes, dataset, opened, present, read

# Columns of metrics.h5 in the order in which a step computes them.
COMPUTED = ("loss", "gradient_norm", "learning_rate")
COLUMNS = (*COMPUTED, "seconds")
SAMPLES = {"sample": np.int32, "timestep": np.int32, "sample_loss": np.float64}
VALIDATION = ("validation_step", "validation_timestep", "validation_loss")
QUARTERS = 4


@dataclasses.dataclass
class Samples:
    """Of each sample of each step, [step, place]: its number in the data (-1: lost), its timestep
    out of so many, its loss."""
    number: np.ndarray
    timestep: np.ndarray
    loss: np.ndarray
    timesteps: int

    def of_quarter(self, quarter):
        """The losses with timesteps of a quarter of all, [step, place]; the others are NaN. The last
        has also that of pure noise, with which some models end."""
        found = np.minimum(self.timestep * QUARTERS // self.timesteps, QUARTERS - 1)
        return np.where((self.timestep >= 0) & (found == quarter), self.loss, np.nan)

    def range_of(self, quarter):
        """First and last timestep of a quarter."""
        edges = [-(-self.timesteps * one // QUARTERS) for one in (quarter, quarter + 1)]
        return edges[0], edges[1] - 1


@dataclasses.dataclass
class Validations:
    """Of each validation the steps that were done before, [validation]; the timesteps, [timestep];
    the mean losses of its clips, [validation, timestep]."""
    step: np.ndarray
    timestep: np.ndarray
    loss: np.ndarray


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


def samples(folder):
    """→ Samples, or None in a file of an earlier version. Raises Damaged."""
    with opened(metrics_of(folder)) as file:
        if len(present(file, SAMPLES)) < len(SAMPLES):
            return None
        arrays = {name: dataset(file, name) for name in SAMPLES}
        shape = arrays["sample"].shape
        for name, array in arrays.items():
            if array.dtype != SAMPLES[name] or len(array.shape) != 2 or array.shape != shape:
                raise Damaged(f"{name} is {array.dtype} {list(array.shape)}, expected "
                              f"{np.dtype(SAMPLES[name])} [step, place], as the others")
        if len(arrays["sample"]) != len(dataset(file, "loss")):
            raise Damaged(f"sample has {len(arrays['sample'])} rows, expected as many as loss")
        timesteps = attributes(arrays["timestep"]).get("timesteps")
        if not isinstance(timesteps, np.integer) or not 0 < timesteps < 1 << 30:
            raise Damaged(f"timestep has timesteps = {timesteps}, expected how many there are")
        values = [read(array) for array in arrays.values()]
    return Samples(*values, int(timesteps))


def validations(folder):
    """→ Validations, or None if there are none. Raises Damaged."""
    with opened(metrics_of(folder)) as file:
        if not present(file, VALIDATION):
            return None
        step, timestep, loss = (dataset(file, name) for name in VALIDATION)
        if (step.dtype, timestep.dtype, loss.dtype) != (np.int32, np.int32, np.float64) or (
                loss.shape != step.shape + timestep.shape or len(loss.shape) != 2
                or 0 in loss.shape):
            raise Damaged(f"{VALIDATION[-1]} is {loss.dtype} {list(loss.shape)}, expected float64 "
                          f"[{', '.join(VALIDATION[:2])}]")
        return Validations(*(read(array) for array in (step, timestep, loss)))


def lost(values):
    """Which rows of metrics() the training has lost, as bool [step]: each step that was done has
    its time."""
    return np.isnan(values["seconds"])


def encoded_samples(folder, problem):
    """Number of the sample → its prompt and video, of those in job.h5 whose encoded video is there;
    None if job.h5 lists no samples. Links are not followed. problem: called with a Damaged for each
    sample that is damaged. Raises Damaged."""
    with opened(folder / "job.h5") as file:
        group = file.get("samples")
        if not isinstance(group, h5py.Group):
            return None
        found = {}
        for name in sorted(group):
            one = group.get(name) if name.isdecimal() else None
            told = attributes(one) if isinstance(one, h5py.Group) else {}
            if "prompt" not in told or "file" not in told:
                problem(Damaged(f"/samples/{name}: no attributes prompt and file"))
                continue
            link = one.get("latent_mean", getlink=True)
            if isinstance(link, h5py.ExternalLink) and (folder / link.filename).is_file():
                found[int(name)] = {"prompt": str(told["prompt"]), "file": str(told["file"])}
        return found


def _by_step(paths):
    """[(step, folder)] of folders step-NNNNNN, by step."""
    found = []
    for path in paths:
        step = path.name.removeprefix("step-")
        if step.isdecimal() and step == f"{int(step):06}":
            found.append((int(step), path))
    return sorted(found)


def sampled_of(folder):
    """[(step, output folder of the job that made clips after it)] of a training, by step."""
    return _by_step(path.parent for path in (folder / "samples").glob("step-*/job.h5"))


def kept_of(folder):
    """[(step, file of what was trained until then)] of results that are kept, by step."""
    found = [(step, trained_of(path)) for step, path in _by_step((folder / "kept").glob("step-*"))]
    return [(step, path) for step, path in found if path.is_file()]

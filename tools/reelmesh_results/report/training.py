"""How a training goes: what its metrics, its options, its samples and its LoRA say."""
import math

import numpy as np

from .. import training
from ..hdf5 import Damaged

MAX_WINDOW = 200  # steps of the running mean
CURVE = 60  # points of the running mean in the numbers
MAX_SAMPLES = 200  # of which prompt and video are read
LARGEST = 1e100  # of a value; what is computed in float32 cannot reach it


class Training:
    """`values`: column → float64 [step], NaN in rows that are lost; all empty without metrics.h5.
    `window`: steps of the running mean. `samples`, `validations`: as training.py reads them, or
    None. Files that are damaged are noted in the job."""

    def __init__(self, job):
        self._job = job
        self.values = {name: np.zeros(0) for name in training.COLUMNS}
        self.samples = self.validations = None
        path = training.metrics_of(job.folder)
        if path.exists():
            try:
                self.values = training.metrics(job.folder)
                self.samples = training.samples(job.folder)
                self.validations = training.validations(job.folder)
            except Damaged as error:
                job.problem(path, error)
        self.steps = len(self.values["loss"])
        self.window = min(MAX_WINDOW, max(1, self.steps // 10))
        self._encoded = self._read_samples()

    @property
    def limit(self):
        """train.clip; None: gradients are not limited, or job.h5 does not say."""
        return _number(self._job.options.get("train.clip"))

    def mean(self, name):
        """Running mean of a column: of each step and those before it, `window` in all, without
        values that are not finite. float64 [step]; NaN in the first window - 1 steps, and where no
        value is finite."""
        return _running_mean(self.values[name][:, None], self.window)

    @property
    def quarter_window(self):
        """Steps of a mean of the losses in a quarter of the timesteps, for as many samples as in
        the other means; fewer at the beginning, but at least `window`."""
        return min(training.QUARTERS * self.window, self.steps)

    def quarter_means(self):
        """Running means of the losses of samples in each quarter of the timesteps, as mean()."""
        return [_running_mean(self.samples.of_quarter(quarter), self.quarter_window, self.window)
                for quarter in range(training.QUARTERS)]

    def numbers(self):
        """Those that the page, the text and --json show; schema.json describes them."""
        options = self._job.options
        batch, planned = (_whole(options.get(name)) for name in ("train.batch", "train.steps"))
        lost = training.lost(self.values)
        means = self.mean("loss")[self.window - 1:]
        norms = self._finite("gradient_norm")
        rates = self._finite("learning_rate")
        seconds = self._finite("seconds")
        total = float(seconds.sum())
        median = float(np.median(seconds)) if len(seconds) else None
        left = max(0, planned - self.steps) if planned is not None else None
        count = len(self._encoded) if self._encoded is not None else None
        return {
            "method": options.get("train.method", ""), "steps": self.steps,
            "planned_steps": planned, "batch": batch,
            "clips_seen": batch * self.steps if batch is not None else None,
            "samples": None if count is None else {"count": count, "items": self._items},
            "epochs": batch * self.steps / count if batch is not None and count else None,
            "lost_steps": int(lost.sum()),
            "not_finite_steps": int((~_is_finite(self.values["loss"]) & ~lost).sum()),
            "loss": {"window": self.window, "first": _at(means, 0), "last": _at(means, -1),
                     "lowest": float(np.nanmin(means)) if np.isfinite(means).any() else None,
                     "curve": [_at(means, place) for place in np.linspace(
                         0, len(means) - 1, min(CURVE, len(means))).astype(int)]},
            "loss_by_quarter": self._by_quarter(), "validation": self._validation(),
            "gradient_norm": {
                "median": float(np.median(norms)) if len(norms) else None,
                "max": float(norms.max()) if len(norms) else None, "limit": self.limit,
                "limited": float((norms > self.limit).mean())
                if len(norms) and self.limit is not None else None},
            "learning_rate": {"max": float(rates.max()) if len(rates) else None,
                              "last": _at(self.values["learning_rate"], -1)},
            "step_seconds": {"median": median, **{
                key: float(np.quantile(seconds, share)) if len(seconds) else None
                for key, share in (("min", 0), ("p05", 0.05), ("p95", 0.95), ("max", 1))},
                "total": total},
            "clips_per_hour": 3600 * batch * len(seconds) / total if batch and total else None,
            "seconds_left": left * median if left is not None and median is not None else None,
            "lora": self._lora(), "kept": self._kept(), "made": self._made()}

    def _kept(self):
        losses = {}
        if self.validations is not None:
            means = self.validations.loss.mean(1)
            losses = {int(step): _at(means, i) for i, step in enumerate(self.validations.step)}
        return [{"step": step, "validation_loss": losses.get(step), "bytes": path.stat().st_size,
                 "file": str(path.relative_to(self._job.folder))}
                for step, path in training.kept_of(self._job.folder)]

    def _made(self):
        steps = [step for step, _ in training.sampled_of(self._job.folder)]
        if not steps:
            return None
        return {"steps": steps, "items": [
            {**one.clip.settings, "step": one.step, "clip": one.place, "number": one.clip.number,
             "state": one.clip.state, "reason": one.clip.reason,
             "file": str(one.clip.path.relative_to(self._job.folder))} for one in self._job.made]}

    def _by_quarter(self):
        if self.samples is None or not self.steps:
            return None
        found = []
        for quarter, means in enumerate(self.quarter_means()):
            first, last = self.samples.range_of(quarter)
            count = int(_is_finite(self.samples.of_quarter(quarter)).sum())
            found.append({"timesteps": [first, last], "samples": count,
                          "first": _at(means, self.window - 1), "last": _at(means, -1)})
        return {"window": self.quarter_window, "quarters": found}

    def _validation(self):
        if self.validations is None:
            return None
        one = self.validations
        means = one.loss.mean(1)
        finite = np.flatnonzero(_is_finite(means))
        lowest = int(finite[np.argmin(means[finite])]) if len(finite) else None
        return {"steps": one.step.tolist(), "timesteps": one.timestep.tolist(),
                "loss": [_at(means, place) for place in range(len(means))],
                "loss_by_timestep": [[_at(row, place) for place in range(len(row))]
                                     for row in one.loss.T],
                "lowest": None if lowest is None else float(means[lowest]),
                "lowest_step": None if lowest is None else int(one.step[lowest])}

    def _finite(self, name):
        return self.values[name][_is_finite(self.values[name])]

    def _lora(self):
        options, path = self._job.options, training.trained_of(self._job.folder)
        rank = _whole(options.get("lora.rank"))
        alpha = _number(options.get("lora.alpha"))
        found = path.is_file()
        return {"rank": rank, "alpha": rank if alpha is None else alpha,  # as the option's default
                "rank_pattern": options.get("lora.rank-pattern", ""),
                "alpha_pattern": options.get("lora.alpha-pattern", ""),
                "targets": [one for one in options.get("lora.targets", "").split(",") if one],
                "file": str(path.relative_to(self._job.folder)) if found else None,
                "bytes": path.stat().st_size if found else None}

    def _read_samples(self):
        """training.encoded_samples(); those that are listed become self._items."""
        self._items = []
        index = self._job.folder / "job.h5"
        try:
            found = training.encoded_samples(self._job.folder,
                                             lambda error: self._job.problem(index, error))
        except Damaged as error:
            self._job.problem(index, error)
            return None
        for number, told in list((found or {}).items())[:MAX_SAMPLES]:
            self._items.append({"sample": number} | told)
        return found


def _running_mean(values, window, least=None):
    """Means over `window` rows up to each one, or all rows if they are at least `least`, of the
    values that are finite. values: [step, …]"""
    first = np.maximum(0, np.arange(1, len(values) + 1) - window)
    finite = _is_finite(values)
    sums = np.cumsum(np.concatenate([[0], np.where(finite, values, 0).sum(1)]))
    counts = np.cumsum(np.concatenate([[0], finite.sum(1)]))
    count = counts[1:] - counts[first]
    found = np.where(count > 0, (sums[1:] - sums[first]) / np.maximum(1, count), np.nan)
    found[:(window if least is None else least) - 1] = np.nan
    return found


def _is_finite(values):
    return np.abs(values) < LARGEST


def _at(values, place):
    """The value at this place; None if there is none, or if it is not finite."""
    return float(values[place]) if len(values) and _is_finite(values[place]) else None


def _number(text):
    """The value of an option; None without one, and for none."""
    try:
        found = float(text)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def _whole(text):
    found = _number(text)
    return int(found) if found is not None and 0 <= found < 2 ** 53 else None

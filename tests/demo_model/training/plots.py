"""Plots of the training logs."""
import csv

import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot


def write(folder):
    """Writes loss.png: logged values over minutes of training, one panel per stage."""
    logs = sorted(folder.glob("*.csv"))
    figure, panels = pyplot.subplots(1, len(logs), figsize=(5 * len(logs), 4), squeeze=False)
    for panel, path in zip(panels[0], logs):
        rows = list(csv.DictReader(path.open()))
        minutes = [float(row["seconds"]) / 60 for row in rows]
        for name in rows[0]:
            if name not in ("step", "seconds", "rate", "gradient"):
                panel.plot(minutes, [float(row[name]) for row in rows], label=name)
        panel.set(title=path.stem, xlabel="minutes", yscale="log")
        panel.legend()
        panel.grid(which="both", alpha=0.3)
    figure.tight_layout()
    figure.savefig(folder / "loss.png", dpi=110)

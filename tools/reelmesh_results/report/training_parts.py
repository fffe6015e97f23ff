"""The parts of the page that show a training: its curves, what is trained, its samples."""
import posixpath
from urllib.parse import quote

import numpy as np

from . import charts, clip_cards, colours
from .markup import table, text
from .training import MAX_SAMPLES
from .training_words import in_words
from .units import number, plain, plural, seconds, size


def of(found, training, media, folder):
    """Parts of the page: (identifier, title, HTML). found: numbers of the training; media: of the
    clips that it made, by their numbers; folder: of the job, from that of the page."""
    parts = [("training", "Training",
              _curves(found, training) + _facts(found) + _files(found, folder))]
    if found["made"] is not None:
        parts.append(("made", "Clips made in the training", _made(found["made"], media, folder)))
    if found["samples"] is not None:
        parts.append(("samples", "Samples", _samples(found["samples"])))
    return parts


def _curves(found, training):
    if not found["steps"]:
        return '<p class="empty">No step has been written to metrics.h5.</p>'
    loss, window = found["loss"], found["loss"]["window"]
    mean = training.mean("loss") if window > 1 else None
    picture = charts.by_step(training.values["loss"], mean, "loss", "loss", wide=True)
    legend = "" if mean is None else (
        '<ul class="legend"><li><i class="dash faint"></i>each step</li><li><i class="dash mean">'
        f"</i>mean of {number(window)} steps</li></ul>")
    words = (f'Loss: {plain(loss["first"])} → {plain(loss["last"])}' if window > 1 else "Loss")
    pictures = [_figure(words, legend + picture if picture else
                        '<p class="empty">No loss is finite.</p>')]
    pictures += _validation(found, training) + _by_quarter(found, training)
    norm = found["gradient_norm"]
    limit = "" if norm["limit"] is None else f', limited to {plain(norm["limit"])} (dashed)'
    for name, label, words, limit_of in (
            ("gradient_norm", "gradient norm", f'Norm of the gradient{limit}', norm["limit"]),
            ("learning_rate", "learning rate", "Learning rate", None),
            ("seconds", "seconds", "Seconds a step: median "
             f'{seconds(found["step_seconds"]["median"])}', None)):
        mean = training.mean(name) if window > 1 and name != "learning_rate" else None
        picture = charts.by_step(training.values[name], mean, label, name, limit=limit_of)
        pictures.append(_figure(words, picture or '<p class="empty">No value is finite.</p>'))
    return f'{pictures[0]}<div class="pictures">{"".join(pictures[1:])}</div>'


def _validation(found, training):
    """The picture of validation losses in percent of the first, if there are any."""
    values = found["validation"]
    if values is None:
        return []
    of = training.validations
    lines = [(f"timestep {timestep}", colour, losses, of.loss[:, place], 1.2)
             for place, (timestep, losses, colour) in enumerate(zip(
                 values["timesteps"], values["loss_by_timestep"], _colours(len(of.timestep))))]
    lines.append(("mean", charts.INK, values["loss"], of.loss.mean(1), 2.2))
    picture = charts.curves(
        [(of.step, 100 * losses / losses[0], colour, width, True)
         for _, colour, _, losses, width in lines if losses[0] > 0], "% of the first",
        f"validation loss, {plural(len(of.step), 'validation')}", "validation",
        from_zero=False, last=training.steps)
    legend = _legend((charts.VARIABLES.get(colour, colour), f"{name}: {_change(losses)}")
                     for name, colour, losses, _, _ in lines[-1:] + lines[:-1])
    return [_figure("Validation loss, of fixed clips, timesteps and noise", legend + (
        picture or '<p class="empty">No loss is finite.</p>'))]


def _by_quarter(found, training):
    """The picture of the loss by quarters of the timesteps, if they are known."""
    values = found["loss_by_quarter"]
    if values is None:
        return []
    steps = np.arange(training.steps)
    fills = _colours(len(values["quarters"]))
    picture = charts.curves(
        [(steps, means, colour, 1.5, False)
         for means, colour in zip(training.quarter_means(), fills)], "loss",
        f"loss by timestep, {plural(training.steps, 'step')}", "quarters", last=training.steps - 1)
    legend = _legend(
        (colour, f'timesteps {one["timesteps"][0]} to {one["timesteps"][1]}: '
                 f'{_change([one["first"], one["last"]])}')
        for one, colour in zip(values["quarters"], fills))
    return [_figure(f'Loss by timestep: means of up to {number(values["window"])} steps', legend + (
        picture or '<p class="empty">No loss is finite.</p>'))]


def _change(values):
    return " → ".join(plain(value) for value in (values[:1] + values[-1:] if len(values) > 1
                                                 else values))


def _colours(count):
    return [colours.QUARTERS[place % len(colours.QUARTERS)] for place in range(count)]


def _legend(lines):
    """lines: (colour, words)"""
    return '<ul class="legend">' + "".join(
        f'<li><i class="dash" style="border-top:2px solid {colour}"></i>{text(words)}</li>'
        for colour, words in lines) + "</ul>"


def _figure(words, picture):
    return f"<figure><figcaption>{text(words)}</figcaption>{picture}</figure>"


def _facts(found):
    rows = [[text(name), text(value)] for name, value in in_words(found)]
    return table("Training", [("", "text"), ("", "text")], rows, wide=False).replace(
        "<table>", '<table class="pairs">')


def _link(folder, file, words):
    return f'<a href="{text(quote(posixpath.normpath(f"{folder}/{file}")))}">{text(words)}</a>'


def _files(found, folder):
    """What was trained, and what the curves are drawn from."""
    def row(after, one, loss):
        losses = [] if found["validation"] is None else ["" if loss is None else plain(loss)]
        return [after, *losses, _link(folder, one["file"], one["file"]), size(one["bytes"])]
    rows = [row(number(one["step"]), one, one["validation_loss"]) for one in found["kept"]]
    if found["lora"]["file"]:
        rows.append(row("last", found["lora"], None))
    losses = [] if found["validation"] is None else [("validation loss", "number")]
    shown = table("Files of results", [("after step", "number"), *losses, ("file", "text"),
                                       ("size", "number")], rows) if rows else ""
    if not found["steps"]:
        return shown
    return shown + f'<p class="files">{_link(folder, "metrics.h5", "metrics.h5")}</p>'


def _made(made, media, folder):
    """Of each prompt its clips before, during and after the training, side by side."""
    rows = {}
    for one in made["items"]:
        rows.setdefault(one["clip"], []).append(one)
    playing = " autoplay" if len(made["items"]) <= clip_cards.PLAYING else ""
    left = len(made["steps"]) - len({one["step"] for one in made["items"]})
    more = (f'<p class="about">Those of {plural(left, "more step")} are in the folder samples.</p>'
            if left > 0 else "")
    return "".join(_made_row(clips, media, playing, folder) for clips in rows.values()) + more


def _made_row(clips, media, playing, folder):
    known = next((one for one in clips if one["state"] == "complete"), clips[0])
    prompt = " ".join(str(known.get("prompt", "")).split())
    figures = []
    for one in clips:
        when = f'after {plural(one["step"], "step")}' if one["step"] else "before the training"
        shown = clip_cards.picture(one, media.get(one["number"]), playing,
                                   text(f"{when}: {prompt[:120]}"))
        lacking = one["reason"] or one["state"] if one["state"] != "complete" else "no video"
        figures.append(f'<figure>{shown or f"""<p class="empty">{text(lacking)}</p>"""}'
                       f'<figcaption>{text(when)} · {_link(folder, one["file"], "HDF5")}'
                       "</figcaption></figure>")
    return (f'<article class="made"><p class="prompt">{text(prompt) or "<em>no prompt</em>"}</p>'
            f'<p class="settings">{clip_cards.facts(known)}</p>'
            f'<div class="films">{"".join(figures)}</div></article>')


def _samples(samples):
    if not samples["count"]:
        return '<p class="empty">No sample has been encoded yet.</p>'
    rows = [[number(one["sample"]), text(one["prompt"]), f'<code>{text(one["file"])}</code>']
            for one in samples["items"]]
    more = (f'<p class="about">And {number(samples["count"] - MAX_SAMPLES)} more.</p>'
            if samples["count"] > MAX_SAMPLES else "")
    return table("Encoded samples", [("sample", "number"), ("prompt", "text"),
                                     ("video", "text")], rows) + more

"""The parts of the page that show a training: its curves, what is trained, its samples."""
from . import charts
from .markup import table, text
from .training import MAX_SAMPLES
from .training_words import in_words
from .units import number, plain, seconds


def of(found, training):
    """Parts of the page: (identifier, title, HTML). found: numbers of the training."""
    parts = [("training", "Training", _curves(found, training) + _facts(found))]
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


def _figure(words, picture):
    return f"<figure><figcaption>{text(words)}</figcaption>{picture}</figure>"


def _facts(found):
    rows = [[text(name), text(value)] for name, value in in_words(found)]
    return table("Training", [("", "text"), ("", "text")], rows, wide=False).replace(
        "<table>", '<table class="pairs">')


def _samples(samples):
    if not samples["count"]:
        return '<p class="empty">No sample has been encoded yet.</p>'
    rows = [[number(one["sample"]), text(one["prompt"]), f'<code>{text(one["file"])}</code>']
            for one in samples["items"]]
    more = (f'<p class="about">And {number(samples["count"] - MAX_SAMPLES)} more.</p>'
            if samples["count"] > MAX_SAMPLES else "")
    return table("Encoded samples", [("sample", "number"), ("prompt", "text"),
                                     ("video", "text")], rows) + more

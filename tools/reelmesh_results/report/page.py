"""report.html: one page that needs nothing else, except its videos if they are many."""
import base64
import hashlib
import os
import pathlib
import string

from ..span_names import lanes
from . import clip_cards, colours, timeline, trace_parts, training_parts
from .markup import section, table, text
from .units import (SIMULATED, not_complete, number, percent, plain, plural, provenance_in_words, seconds,
                    signed_percent)

HERE = pathlib.Path(__file__).resolve().parent
STATUS = {"complete": ("good", "complete"), "running": ("busy", "running"),
          "failed": ("bad", "some clips failed"), "stopped": ("warn", "stopped early"),
          "unfinished": ("warn", "unfinished"),
          "simulated": ("warn", "simulated"), "unknown": ("warn", "unknown")}


def of(numbers, job, measured, media, folder):
    """The page as text. measured: see measured.py; media: see media.py; folder: of the page."""
    kinds = _kinds(measured) if measured.trace else []
    links = os.path.relpath(job.folder, folder)
    training = numbers["training"]
    sections = (training_parts.of(training, job.training, media, links) if training else
                [("clips", "Clips", clip_cards.of(numbers, media, links))])
    payload = ""
    if measured.trace:
        if measured.trace.count:
            payload = timeline.payload(measured.rows, measured.trace, kinds)
        sections += trace_parts.of(numbers["trace"], job, measured, kinds)
    else:
        sections.append(("timeline", "Timeline", "<p class=empty>" + _no_trace(numbers) + "</p>"))
    sections += [("plan", "Plan", _plan(numbers)), ("options", "Options", _options(numbers)),
                 ("provenance", "What was run", _provenance(numbers))]
    script = "".join((HERE / name).read_text() for name in ("spans.js", "timeline.js", "page.js"))
    early = 'document.documentElement.classList.add("js");'
    digests = " ".join(f"'sha256-{_digest(one)}'" for one in (early, script))
    template = string.Template((HERE / "page.html").read_text())
    return template.substitute(
        title=text(pathlib.Path(numbers["job"]["folder"]).name), first=sections[0][0],
        digests=digests, early=early,
        style=(HERE / "page.css").read_text(), head=_head(numbers),
        links="".join(f'<a href="#{name}">{text(title)}</a>' for name, title, _ in sections),
        sections="".join(section(name, title, content) for name, title, content in sections),
        payload=payload, script=script)


def _digest(script):
    """As a Content-Security-Policy names the scripts that may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _kinds(measured):
    pairs = [(measured.trace.lanes.texts[lane], measured.trace.names.texts[name])
             for lane, name in measured.sums.kinds.pairs]
    return [{"name": name, "lane": lane, "colour": colours.of_name(name)} for lane, name in pairs]


# -- head -----------------------------------------------------------------------------------------


def _head(numbers):
    job, clips, trace = numbers["job"], numbers["clips"], numbers["trace"]
    kind, words = STATUS.get(job["status"], STATUS["unknown"])
    training = numbers["training"]
    simulated = job["status"] == "simulated"
    figures = _of_training(training) if training else [
        (number(clips["total"]), "clips that would be made") if simulated else
        (f'{number(clips["complete"])}<small> of {number(clips["total"])}</small>',
         "clips complete")]
    figures += [(seconds(job["wall_seconds"]), "predicted time of the job" if simulated else
                 "from the start of the program to its end"),
                (number(job["ranks"]),
                 f'{"rank" if job["ranks"] == 1 else "ranks"} on '
                 + plural(len(job["hosts"]), "host")
                 + (f', {text(", ".join(job["devices"]))}' if job["devices"] else ""))]
    if prediction := job["prediction"]:
        figures.append((seconds(prediction["predicted_seconds"]),
                        f'predicted; measured {seconds(prediction["measured_seconds"])}, '
                        f'error {signed_percent(prediction["error_percent"])}'))
    if not training:
        figures.append((text(job["sizes"][0]) if job["sizes"] else "–",
                        "frames × height × width" + (f', and {len(job["sizes"]) - 1} more sizes'
                                                     if len(job["sizes"]) > 1 else "")))
    if trace and trace["ranks"]:
        busy = sum(rank["seconds"][lanes.compute] for rank in trace["ranks"])
        figures.append((percent(busy / (trace["seconds"] * len(trace["ranks"]))),
                        "of the ranks’ time is compute"))
    tiles = "".join(f"<div><dd>{value}</dd><dt>{name}</dt></div>" for value, name in figures)
    facts = [f"reelmesh {text(job['version'])}" if job["version"] else "",
             f"model {text(pathlib.PurePath(job['model']).name)}" if job["model"] else "",
             text(job["start"].replace("T", " ").replace("Z", " UTC")), text(job["folder"])]
    return (f'<p class="status {kind}">{words}</p>'
            f'<h1>{text(pathlib.Path(job["folder"]).name)}</h1>'
            '<p class="facts">'
            + " · ".join(f"<span>{fact}</span>" for fact in facts if fact) + "</p>"
            + f'<dl class="figures">{tiles}</dl>{_notes(numbers)}{_now(job)}')


def _of_training(found):
    """Figures of a training: value and name."""
    planned = ("" if found["planned_steps"] is None else
               f'<small> of {number(found["planned_steps"])}</small>')
    window = found["loss"]["window"]
    figures = [(f'{number(found["steps"])}{planned}', "steps"),
               (plain(found["loss"]["last"]),
                f"loss, mean of the last {plural(window, 'step')}" if window > 1 else "loss")]
    if found["clips_per_hour"] is not None:
        figures.append((plain(found["clips_per_hour"]), "clips per hour"))
    return figures


def _notes(numbers):
    """What is not as it should be, in plain words."""
    job, clips, trace = numbers["job"], numbers["clips"], numbers["trace"]
    notes = []
    if job["status"] == "unfinished":
        notes.append("The job has not ended by itself: it was killed, an error ended it, or it "
                     "runs where its status cannot be seen. The page shows what was written.")
    if job["status"] == "running":
        notes.append("The job is running. The page shows what was written until now.")
    if job["status"] == "stopped":
        notes.append("The job was stopped early and can go on: run it again with "
                     "output.if-exists = resume.")
    if job["status"] == "simulated":
        notes.append(text(SIMULATED))
    elif bad := not_complete(clips):
        notes.append(f'Clips that are not complete: {", ".join(bad)}. <a href="#clips">Reasons '
                     "are below.</a>")
    notes += [f"Memory was short: {text(line)}." for line in job["planned_again"]]
    if trace and not trace["complete"]:
        notes.append("The trace is not complete: it has what was written before the job ended.")
    notes += [text(problem) for problem in numbers["problems"][:20]]
    if len(numbers["problems"]) > 20:
        notes.append(f"and {len(numbers['problems']) - 20} more such files.")
    items = "".join(f"<li>{note}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if notes else ""


def _now(job):
    """What the ranks do at the moment, from status.json."""
    now = job["now"]
    if not now:
        return ""
    rows = [[text(rank.get("rank", "")), text(rank.get("host", "")), text(rank.get("stage") or "–"),
             text(rank.get("clip", "–")),
             text(f"{rank['step']} of {rank.get('steps', '?')}" if "step" in rank else "–"),
             text(rank.get("waiting_in", ""))]
            for rank in now.get("ranks", []) if isinstance(rank, dict)]
    return (f'<details{" open" if job["status"] == "running" else ""}><summary>What the '
            f'ranks did {seconds(now["seconds_ago"])} ago</summary>'
            + _progress(now)
            + table("Ranks", [("rank", "number"), ("host", "text"), ("stage", "text"),
                              ("clip", "number"), ("step", "number"), ("waiting in", "text")], rows)
            + "</details>")


def _progress(now):
    """How far a training is, whose metrics.h5 is older."""
    if "state" not in now:
        return ""
    parts = [f'{now["state"]}: {now.get("complete")} of {now.get("steps")} steps are done']
    if now.get("saved_step") is not None:
        parts.append(f'saved after {now["saved_step"]}')
    if now.get("loss") is not None:
        parts.append(f'loss {now["loss"]}')
    return f'<p>{text(", ".join(parts))}</p>'


def _no_trace(numbers):
    if numbers["options"].get("trace.level") == "off":
        return ("The job was run with trace.level = off, so there is nothing about time and "
                "memory.")
    if numbers["job"]["status"] in ("running", "unfinished"):
        return "No trace has been written yet."
    return "There is no trace.h5 that can be read, so there is nothing about time and memory."


# -- what was run ---------------------------------------------------------------------------------


def _plan(numbers):
    plan = numbers["plan"].strip()
    return f'<pre class="wide" tabindex="0">{text(plan)}</pre>' if plan else '<p class="empty">No plan.</p>'


def _options(numbers):
    lines = "\n".join(f"{key} = {value}" for key, value in numbers["options"].items())
    given = numbers["provenance"].get("options_given") or []
    first = (f'<h3>As given</h3><pre tabindex="0">{text(chr(10).join(given))}</pre>'
             if given else "")
    return (f'{first}<details{"" if given else " open"}><summary>All, as resolved</summary>'
            f'<pre tabindex="0">{text(lines)}</pre></details>')


def _provenance(numbers):
    rows = [[text(name), f"<pre>{text(value)}</pre>" if "\n" in value else
             f"<code>{text(value)}</code>"]
            for name, value in provenance_in_words(numbers["provenance"], "\n")]
    found = table("Provenance", [("", "text"), ("", "text")], rows, wide=False).replace(
        "<table>", '<table class="pairs">')
    ranks = numbers["provenance"].get("ranks")
    if ranks:
        columns = [(name, "number" if name == "rank" else "text") for name in ranks[0]]
        found += table("Machines", columns, [[text(row[name]) for name, _ in columns]
                                             for row in ranks])
    return found if rows else '<p class="empty">job.h5 does not say.</p>'

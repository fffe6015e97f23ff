"""The clips as cards: video, prompt, seed, settings; and those that are not complete."""
import posixpath
from urllib.parse import quote

from ..index import WITH_FILE
from .markup import table, text
from .units import SIMULATED, number

FIRST = 24  # clips that are shown at once
PLAYING = 12  # up to so many clips play without JavaScript
SMALL = 200  # pixels: smaller clips are enlarged without interpolation


def of(numbers, media, folder):
    """media: by number of the clip; folder: path from the page to the job's folder."""
    clips = numbers["clips"]["items"]
    if numbers["job"]["status"] == "simulated":
        return f'<p class="empty">{number(len(clips))} clips would be made. {text(SIMULATED)}</p>'
    if not clips:
        return '<p class="empty">The job has no clips.</p>'
    cards = [clip for clip in clips if clip["state"] in WITH_FILE]
    others = [clip for clip in clips if clip["state"] not in WITH_FILE]
    return _others(others) + (_cards(cards, media, folder) if cards else
                              '<p class="empty">No clip is complete.</p>')


def _others(clips):
    if not clips:
        return ""
    rows = [[number(clip["clip"]),
             f'<span class="state {text(clip["state"])}">{text(clip["state"])}</span>',
             text(clip["reason"] or {"missing": "not made yet", "saved": "saved within its "
                                     "denoising; a restart goes on with it"}.get(clip["state"],
                                                                               "–")),
             text(clip.get("prompt", "")), text(clip.get("seed", ""))] for clip in clips]
    found = table("Clips that are not complete", [("clip", "number"), ("state", "text"),
                                                  ("reason", "text"), ("prompt", "text"),
                                                  ("seed", "number")], rows)
    return found if len(clips) <= 20 else (f"<details open><summary>{number(len(clips))} clips are "
                                           f"not complete</summary>{found}</details>")


def _cards(clips, media, folder):
    playing = " autoplay" if len(clips) <= PLAYING else ""
    notes = ""
    if not any(one.video for one in media.values()):
        notes = ('<p class="about">ffmpeg was not installed when this page was made: a picture of '
                 "each clip stands for its video.</p>" if media else
                 '<p class="about">The clips have no video (output.video = no).</p>')
    search = ('<div class="search scripted"><label for="filter">Filter</label><input id="filter" '
              'type="search" placeholder="prompt, seed or number" '
              'autocomplete="off"><output id="filter-count" for="filter">'
              f'{number(len(clips))} clips</output></div>' if len(clips) > 1 else "")
    cards = [_card(clip, media.get(clip["clip"]), playing, folder) for clip in clips]
    # A browser with JavaScript reads the rest when it is asked for.
    rest = (f'<noscript id="rest"><div class="cards">{"".join(cards[FIRST:])}</div></noscript>'
            if cards[FIRST:] else "")
    return (f'{notes}{search}<div class="cards" id="cards">{"".join(cards[:FIRST])}</div>'
            f'{rest}<p class="more scripted"><button type="button" id="more" hidden></button></p>')


def picture(clip, media, playing, label):
    """The video, or a picture of it."""
    pixels = (" pixels" if isinstance(clip.get("height"), int) and clip["height"] < SMALL else "")
    shape = (f' width="{clip["width"]}" height="{clip["height"]}"'
             if isinstance(clip.get("width"), int) else "")
    if media and media.video:
        return (f'<video class="picture{pixels}" src="{text(media.video)}" '
                f'poster="{text(media.poster)}"{shape} loop muted playsinline controls '
                f'preload="none"{playing} aria-label="{label}"></video>')
    if media:
        return (f'<img class="picture{pixels}" src="{text(media.poster)}"{shape} '
                f'alt="{label}" loading="lazy">')
    return ""


def facts(clip):
    """Its settings in a line of HTML."""
    found = [f"seed {clip['seed']}" if "seed" in clip else "",
             (f"preview after {clip['stopped_after']} of {clip.get('steps', '?')} steps"
              if "stopped_after" in clip else f"{clip['steps']} steps" if "steps" in clip else ""),
             f"guidance {clip['guidance']:g}" if isinstance(clip.get("guidance"), float) else "",
             f"{clip['frames']}×{clip['height']}×{clip['width']}" if "height" in clip else "",
             f"{clip['fps']:g} frames/s" if isinstance(clip.get("fps"), float) else "",
             f"{clip['dtype']}" if "dtype" in clip else "",
             f"from {clip['image']}" if "image" in clip else "",
             f"from {clip['video']}" if "video" in clip else "",
             f"strength {clip['strength']:g}" if isinstance(clip.get("strength"), float) else ""]
    return " · ".join(text(fact) for fact in found if fact)


def _card(clip, media, playing, folder):
    prompt = " ".join(str(clip.get("prompt", "")).split())
    label = text(f"Clip {clip['clip']}: {prompt[:120]}")
    file = quote(posixpath.normpath(f"{folder}/{clip['file']}"))
    negative = str(clip.get("negative_prompt") or "")
    download = (f'<a href="{text(media.video)}" download="clip-{clip["clip"]:06}.mp4">MP4</a> · '
                if media and media.video and not media.video.startswith("data:") else
                f'<a class="save scripted" download="clip-{clip["clip"]:06}.mp4">MP4</a>'
                '<span class="scripted"> · </span>' if media and media.video else "")
    shown = picture(clip, media, playing, label)
    return (f'<article class="card">{shown}<div class="words"><h3>{clip["clip"]}</h3>'
            f'<p class="prompt">{text(prompt) or "<em>no prompt</em>"}</p>'
            + (f'<p class="negative">not: {text(negative)}</p>' if negative else "")
            + f'<p class="settings">{facts(clip)}</p>'
            f'<p class="files">{download}<a href="{text(file)}">HDF5</a>'
            "</p></div></article>")

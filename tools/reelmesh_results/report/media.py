"""Small videos and pictures of clips for a page: H.264 in MP4, a middle frame as JPEG."""
import base64
import collections
import dataclasses
import pathlib
import re
import shutil
import tempfile

from PIL import Image

from .. import movie
from ..clips import Clip
from ..errors import not_written
from ..hdf5 import Damaged
from ..index import WITH_FILE
from . import films

MADE = re.compile(r"\d{6,}\.(mp4|jpg)")
INLINE = 8 << 20  # bytes of all videos and pictures together that are put into the page
POSTER = 480  # pixels: the longer side of a picture at most
FEW, LARGE, SMALL = 24, 384, 192  # pixels: shorter side to which up to FEW clips, or more, grow


@dataclasses.dataclass
class Media:
    """Addresses for the page: data:… or paths relative to it; '' where there is none."""
    video: str = ""
    poster: str = ""


def folder_of(page):
    """Where the files of a page are, if they are not in it."""
    return page.with_name(page.stem + "_files")


class Folder:
    """A folder beside the page in which files are made; it is kept if they are not put inline."""

    def __init__(self, page):
        self.wanted = folder_of(page)
        try:
            self.path = pathlib.Path(tempfile.mkdtemp(prefix=f".{self.wanted.name}.",
                                                      dir=page.parent))
            self.path.chmod(0o755)
        except OSError as error:
            not_written(self.wanted, error)

    def keep(self):
        remove_earlier(self.wanted)
        try:
            self.path.rename(self.wanted)
        except OSError as error:
            not_written(self.wanted, error)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def remove_earlier(folder):
    """Removes the folder of an earlier page; not one that has other files."""
    if (folder.is_dir() and not folder.is_symlink()
            and all(MADE.fullmatch(path.name) and not path.is_dir() for path in folder.iterdir())):
        shutil.rmtree(folder, ignore_errors=True)


def make(job, page):
    """Media by number of the clip. Clips that turn out to be damaged are noted in the job. Exits
    with status 73 if files cannot be written."""
    clips = [clip for clip in job.shown if clip.state in WITH_FILE and clip.has_video]
    if not clips:
        remove_earlier(folder_of(page))
        return {}
    groups = collections.defaultdict(list)
    for clip in clips:
        groups[tuple(clip.settings.get(name) for name in ("frames", "height", "width", "fps"))
               ].append(clip)
    with Folder(page) as folder:
        found = {}
        try:
            for group in groups.values():
                found.update(_make_group(job, group, folder.path,
                                         LARGE if len(clips) <= FEW else SMALL))
            total = sum(path.stat().st_size for path in folder.path.iterdir())
            for media in found.values():
                for name, kind in (("video", "video/mp4"), ("poster", "image/jpeg")):
                    file = getattr(media, name)
                    setattr(media, name, "" if not file else f"{folder.wanted.name}/{file}"
                            if total > INLINE else _data(folder.path / file, kind))
        except OSError as error:
            not_written(folder.wanted, error)
        if total > INLINE:
            folder.keep()
        else:
            remove_earlier(folder.wanted)
    return found


def _data(path, kind):
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _make_group(job, clips, folder, side):
    """Clips of one size and frame rate."""
    found, film = {}, None
    for clip in clips:
        try:
            with Clip(clip.path) as opened:
                times = max(1, min(side // min(opened.height, opened.width),
                                   movie.MAX_SIDE // max(opened.height, opened.width)))
                if film is None and movie.has_ffmpeg():
                    film = films.Films(opened, times, len(clips), folder)
                poster = opened.frame(opened.frames // 2)
                if film:
                    film.add(clip.number, (movie.enlarged(opened.frame(i), times)
                                           for i in range(opened.frames)))
            picture = Image.fromarray(poster)
            picture.thumbnail((POSTER, POSTER))
            picture.save(folder / f"{clip.number:06}.jpg", quality=88)
            found[clip.number] = Media(poster=f"{clip.number:06}.jpg")
        except Damaged as error:
            job.damaged(clip, error)
    for number, file in (film.finish() if film else {}).items():
        if number in found:
            found[number].video = file
    return found

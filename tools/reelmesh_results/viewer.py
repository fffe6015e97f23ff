"""Pictures and films of clips, and the sheet of a job."""
from . import errors, movie, sheet
from .clips import Clip, Damaged

FILMS = {"mp4": movie.write_mp4, "gif": movie.write_gif, "webp": movie.write_webp}


def _write_png(path, picture):
    errors.written(path, lambda file: picture.save(file, "PNG"))


class Viewer:
    """Writes the files of clips to the folder `to`. `done`: number of clips with all their files.
    frames: of a clip's PNG at most. films: keys of FILMS. clips: number of clips that the job will
    have."""

    def __init__(self, to, frames, films, clips):
        self.to, self._frames, self._films, self._clips = to, frames, films, clips
        self._cells = {}  # number of a clip → its picture in the sheet
        self.done = 0

    def add(self, number, path):
        """False if the clip is damaged, which is reported."""
        try:
            with Clip(path) as clip:
                strip = sheet.strip(clip, self._frames)
                _write_png(self.to / f"{path.stem}.png", sheet.of_clip(clip, strip))
                for kind in self._films:
                    errors.written(self.to / f"{path.stem}.{kind}",
                                   lambda file, clip=clip, kind=kind: FILMS[kind](clip, file))
                if len(self._cells) < sheet.MAX_CLIPS:
                    self._cells[number] = sheet.cell(clip, strip, self._clips)
        except Damaged as error:
            errors.say(f"{path}: {error}")
            return False
        self.done += 1
        return True

    def write_sheet(self):
        if self._cells:
            cells = [cell for _, cell in sorted(self._cells.items())]
            _write_png(self.to / "sheet.png", sheet.of_job(cells))

    def summary(self):
        """What was written."""
        kinds = ["PNG", *(kind.upper() if kind != "webp" else "WebP" for kind in self._films)]
        listed = " and ".join([", ".join(kinds[:-1]), kinds[-1]]) if kinds[1:] else kinds[0]
        shown = len(self._cells)
        return (f"{self.done} {'clip' if self.done == 1 else 'clips'} in {self.to}: {listed} of "
                f"each, and {'all' if self.done == shown else f'the first {shown}'} in sheet.png")

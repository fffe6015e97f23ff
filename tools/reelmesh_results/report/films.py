"""Many MP4s by one ffmpeg, as starting it takes longer than a small clip."""
import subprocess
import tempfile

import numpy as np

from .. import movie


class Films:
    """Videos of one size and frame rate: the frames of all go to one ffmpeg, which cuts its result
    into files. Raises OSError if that fails."""

    def __init__(self, clip, times, count, folder):
        """clip: an open clip of this size; times: by which its frames are enlarged; count:
        largest number of clips; folder: where the files go."""
        self._folder, self._frames, self._numbers = folder, clip.frames, []
        self._prefix = f".{clip.frames}x{clip.height}x{clip.width}x{clip.fps!r}_"
        self._black = np.zeros_like(movie.enlarged(clip.frame(0), times))
        every = str(clip.frames)
        command = [*movie.reader_of(self._black, clip.fps), "-vf", movie.COLOURS, *movie.TAGS,
                   "-c:v", "libx264", "-preset", "veryfast", "-crf", "20",
                   # Each clip begins with a key frame; no frame refers to one of the next clip.
                   "-bf", "0", "-g", every, "-keyint_min", every, "-sc_threshold", "0",
                   "-f", "segment", "-segment_frames",
                   ",".join(str(clip.frames * i) for i in range(1, count + 1)),
                   "-segment_format", "mp4", "-segment_format_options", "movflags=+faststart",
                   "-reset_timestamps", "1", f"file:{folder}/{self._prefix}%06d.mp4"]
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=self._errors)

    def add(self, number, frames):
        """Adds a clip. If `frames` raises, black frames take the places of the rest, and the
        exception goes on."""
        left = self._frames
        self._numbers.append(number)
        try:
            for frame in frames:
                self._process.stdin.write(frame.tobytes())
                left -= 1
        except BrokenPipeError:
            self.finish()  # raises what ffmpeg says
        finally:
            for _ in range(left if self._process.returncode is None else 0):
                self._process.stdin.write(self._black.tobytes())

    def finish(self):
        """Number of the clip → name of its file."""
        self._process.stdin.close()
        failed = self._process.wait() != 0
        self._errors.seek(0)
        said = self._errors.read()
        self._errors.close()
        if failed:
            raise movie.failure(said)
        for place, number in enumerate(self._numbers):
            (self._folder / f"{self._prefix}{place:06}.mp4").rename(
                self._folder / f"{number:06}.mp4")
        return {number: f"{number:06}.mp4" for number in self._numbers}

"""Writes a clip as an MP4 for any player: H.264, yuv420p, even sizes, the clip's frame rate."""
import shutil
import subprocess

import numpy as np

from .errors import fail

LEAST, MOST = 384, 1920  # pixels: enlarge until the shorter side has LEAST, the longer at most MOST


def need_ffmpeg():
    if shutil.which("ffmpeg") is None:
        fail(69, "ffmpeg is not installed; on Debian: apt install ffmpeg; "
                 "or --no-mp4 for PNGs alone")


def enlarged(frame, times):
    """Enlarges by nearest neighbour; repeats the last row or column if a side would be odd."""
    frame = frame.repeat(times, 0).repeat(times, 1)
    return np.pad(frame, [(0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0)], mode="edge")


def write(clip, path):
    sides = sorted((clip.height, clip.width))
    times = max(1, min(-(-LEAST // sides[0]), MOST // sides[1]))
    height, width = enlarged(clip.frame(0), times).shape[:2]
    # Convert colours to BT.709 and tag the file so, as players' defaults differ.
    command = ["ffmpeg", "-loglevel", "error", "-nostdin", "-y", "-f", "rawvideo",
               "-pixel_format", "rgb24", "-video_size", f"{width}x{height}",
               "-framerate", repr(clip.fps), "-i", "pipe:0",
               "-vf", "scale=flags=accurate_rnd:out_color_matrix=bt709:out_range=tv,format=yuv420p",
               "-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709",
               "-color_range", "tv", "-c:v", "libx264", "-crf", "14", "-movflags", "+faststart",
               f"file:{path}"]
    frames = (enlarged(clip.frame(i), times).tobytes() for i in range(clip.frames))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            for frame in frames:
                process.stdin.write(frame)
        except BrokenPipeError:
            pass  # ffmpeg has ended; its error message is reported below
        except BaseException:
            process.kill()
            raise
        errors = process.communicate()[1].decode(errors="replace").strip()
    if process.returncode:
        raise OSError(None, f"ffmpeg: {(errors or 'no reason given').splitlines()[-1]}")

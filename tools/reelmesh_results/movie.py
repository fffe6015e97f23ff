"""Writes a clip as a video or an animated picture, with ffmpeg."""
import shutil
import subprocess

import numpy as np

from .errors import fail

# Colours are converted to BT.709 and the file is tagged so, as players' defaults differ.
COLOURS = "scale=flags=accurate_rnd:out_color_matrix=bt709:out_range=tv,format=yuv420p"
TAGS = ("-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709",
        "-color_range", "tv")
# Pixels: clips are enlarged until the shorter side has MIN_SIDE, the longer at most MAX_SIDE.
MIN_SIDE, MAX_SIDE = 384, 1920
LOSSLESS = ("-c:v", "ffv1", "-level", "3", "-pix_fmt", "bgr0", "-f", "matroska")  # of RGB
GIF_RATE = 50  # frames per second at most: browsers slow down GIFs with more


def has_ffmpeg():
    return shutil.which("ffmpeg") is not None


def need_ffmpeg(otherwise=""):
    """otherwise: what can be done without it."""
    if not has_ffmpeg():
        fail(69, "ffmpeg is not installed; on Debian: apt install ffmpeg"
                 + (f"; or {otherwise}" if otherwise else ""))


def enlarged(frame, times, even=True):
    """Enlarges by nearest neighbour; repeats the last row or column if a side would be odd."""
    frame = frame.repeat(times, 0).repeat(times, 1)
    if not even:
        return frame
    return np.pad(frame, [(0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0)], mode="edge")


def _times(clip):
    """The factor by which a small clip is enlarged."""
    sides = sorted((clip.height, clip.width))
    return max(1, min(-(-MIN_SIDE // sides[0]), MAX_SIDE // sides[1]))


def h264(quality):
    """Options of ffmpeg for an MP4; quality: constant rate factor."""
    return ["-vf", COLOURS, *TAGS, "-c:v", "libx264", "-crf", str(quality), "-movflags",
            "+faststart+use_metadata_tags", "-f", "mp4"]


def write_mp4(clip, path):
    """For any player: H.264, yuv420p, even sizes, the clip's frame rate."""
    encode(clip, path, h264(14), _times(clip))


def write_gif(clip, path):
    """With a palette of the clip's own colours; repeats without end."""
    times = _times(clip)
    rate = f"fps={GIF_RATE}," if clip.fps > GIF_RATE else ""
    # Dots of dithering are finer than the pixels of enlarged clips: visible, and larger files.
    dither = "sierra2_4a" if times == 1 else "none"
    encode(clip, path, ["-vf", f"{rate}split[a][b];[a]palettegen=stats_mode=full[palette];"
                               f"[b][palette]paletteuse=dither={dither}:diff_mode=rectangle",
                        "-loop", "0", "-f", "gif"], times)


def write_webp(clip, path):
    """Animated WebP; repeats without end."""
    encode(clip, path, ["-pix_fmt", "bgra", "-c:v", "libwebp_anim", "-quality", "90", "-loop", "0",
                        "-f", "webp"], _times(clip))


def reader_of(frame, fps):
    """The ffmpeg command up to its input: frames of this size, as bytes on its standard input."""
    height, width = frame.shape[:2]
    return ["ffmpeg", "-loglevel", "error", "-nostdin", "-y", "-f", "rawvideo",
            "-pixel_format", "rgb24", "-video_size", f"{width}x{height}",
            "-framerate", repr(fps), "-i", "pipe:0"]


def failure(said):
    """An OSError with what ffmpeg wrote to its standard error, bytes."""
    lines = said.decode(errors="replace").strip().splitlines()
    return OSError(None, f"ffmpeg: {lines[-1] if lines else 'no reason given'}")


def encode(clip, path, options, times=1, even=True):
    """Gives all frames, enlarged `times` times, to ffmpeg. options: of the output. Raises OSError
    if ffmpeg fails."""
    command = [*reader_of(enlarged(clip.frame(0), times, even), clip.fps), *options, f"file:{path}"]
    frames = (enlarged(clip.frame(i), times, even).tobytes() for i in range(clip.frames))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            for frame in frames:
                process.stdin.write(frame)
        except BrokenPipeError:
            pass  # ffmpeg has ended; its error message is reported below
        except BaseException:
            process.kill()
            raise
        said = process.communicate()[1]
    if process.returncode:
        raise failure(said)

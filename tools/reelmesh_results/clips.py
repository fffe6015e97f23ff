"""Reads the clips in a job's output folder, frame by frame."""
from .errors import fail, say, tell, tool
from .hdf5 import Damaged, attributes, dataset, opened, present, read
from .index import Index
from .outputs import folder_of, is_one_file

# Datasets of a clip in the order in which a job computes them, and the names of their axes.
AXES = {"token_ids": ("token",), "prompt_embeds": ("token", "column"),
        "negative_prompt_embeds": ("token", "column"),
        "latents": ("frame", "channel", "row", "column"),
        "video": ("frame", "row", "column", "channel")}


def find(out, wanted):
    """Output folder, and clip files sorted by number. wanted: numbers of clips, or None for all."""
    if not out.exists():
        fail(66, f"{out}: no such folder; expected the output folder of a job")
    if is_one_file(out):
        return out.parent, [out]
    folder = folder_of(out)
    job = Index.of(folder)
    refuse_training(folder, job)
    found = complete(folder, job)
    if not found:
        fail(66, f"{folder}: no clip is complete in {folder / 'clips'}")
    for number in wanted or []:
        if number not in found:
            fail(66, f"{folder}: no clip {number}; complete are {ranges(found)}")
    _report_missing(folder, job, found)
    return folder, [path for number, path in found.items() if not wanted or number in wanted]


def refuse_training(folder, job):
    """Raises Error if the job is a training, as clips are needed. job: its index, or None."""
    if job is not None and job.is_training:
        use = (f"--model.transformer {folder / 'transformer'}" if (folder / "transformer").is_dir()
               else f"--model.lora {folder / 'lora'}")
        fail(66, f"{folder}: is of a training, which makes no clips; reelmesh-report shows it, and "
                 f"reelmesh run {use} makes clips with what it trained")


def name_of(path):
    """'clip 7' for …/000007.h5; the file's own name if it has no number."""
    return f"clip {int(path.stem)}" if path.stem.isdecimal() else path.stem


def file_of(folder, number):
    """The file of a clip in an output folder, as lib/store/clip.cpp names it: clips/000007.h5; from
    clip 10,000 on clips/012/012345.h5."""
    within = "" if number < 10_000 else f"{number // 1000:03}"
    return folder / "clips" / within / f"{number:06}.h5"


def complete(folder, job):
    """Number → file of the clips that are complete, sorted by number. job: the index of the folder,
    which says which clips are its own; None: it has none, and all are."""
    # Only complete clips have such names; clips that are being written have hidden names.
    paths = [path for names in ("*.h5", "*/*.h5") for path in (folder / "clips").glob(names)]
    found = {int(path.stem): path for path in paths
             if path.stem.isdecimal() and path == file_of(folder, int(path.stem))}
    return {number: path for number, path in sorted(found.items())
            if job is None or number in job.listed}


def _report_missing(folder, job, found):
    """Reports clips that are missing according to job.h5."""
    so_far = f"the job is not finished; complete so far: {ranges(found)}"
    if job is None:
        tell(f"{tool()}: {folder} has no job.h5: {so_far}")
        return
    missing = sorted(set(job.clips) - set(found))
    if job.status == "unfinished":
        tell(f"{tool()}: {folder}: {so_far}")
    elif missing:
        say(f"{folder}: clips {ranges(missing)} of job.h5 are not there")


def finished(folder, paths):
    """Those of these clips that are no previews (sample.stop-after), which are told of. Raises Error
    if there are none."""
    previews = [path for path in paths if _is_preview(path)]
    if previews:
        found = ranges([int(path.stem) for path in previews])
        which = (f"clip {found} is a preview" if len(previews) == 1 else
                 f"clips {found} are previews")
        hint = (f"{folder}: {which}, which reelmesh run --from {folder / 'job.h5'} --clips "
                f"{found.replace(', ', ',')} completes")
        if len(previews) == len(paths):
            fail(66, f"{hint}; no clip is complete")
        say(f"{hint}; left out", "warning")
    return [path for path in paths if path not in previews]


def _is_preview(path):
    try:
        with opened(path) as file:
            return "stopped_after" in attributes(file)
    except Damaged:
        return False  # whoever reads it says so


def ranges(numbers):
    """Sorted numbers as text: [0, 1, 2, 5] → '0-2, 5'."""
    parts = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def check(file):
    """Raises Damaged if the file is not a clip."""
    if not present(file, AXES) and "prompt" not in attributes(file):
        raise Damaged(f"has none of {', '.join(AXES)}: not a clip of reelmesh")


class Clip:
    """An open clip file: sizes, attributes, and frames as uint8 [height, width, 3]."""

    def __init__(self, path):
        self.name = name_of(path)
        self._file = opened(path)
        try:
            self._open(path)
        except BaseException:
            self._file.close()
            raise

    def _open(self, path):
        check(self._file)
        if not present(self._file, ["video"]):
            fail(66, f"{path}: has no video; the job was run with output.video = no")
        self._video = dataset(self._file, "video")
        shape = self._video.shape
        if self._video.dtype != "uint8" or len(shape) != 4 or shape[3] != 3 or not min(shape):
            raise Damaged(f"video is {self._video.dtype} {list(shape)}, expected uint8 "
                          "[frame, height, width, 3]")
        self.frames, self.height, self.width = shape[:3]
        self.attributes = found = attributes(self._file)
        self.prompt = " ".join(str(found.get("prompt", "(no prompt)")).split())
        self.fps = float(found.get("fps", 8))
        if not 0 < self.fps < 1e6:
            raise Damaged(f"fps is {self.fps}, expected frames per second above 0")
        facts = {"seed": "seed {}", "steps": "{} steps", "stopped_after": "preview after step {}",
                 "guidance": "guidance {:g}", "dtype": "{}"}
        self.facts = [text.format(found[name]) for name, text in facts.items()
                      if name in found]
        self.facts.append(f"{self.frames} {'frame' if self.frames == 1 else 'frames'} of "
                          f"{self.width} × {self.height}, {self.fps:g} a second")

    def frame(self, index):
        return read(self._video, index)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

"""The output folder as read by other programs (h5py, h5dump, xarray); the trace; output options."""

import datetime
import os
import pathlib
import shutil
import socket
import subprocess
import time

import h5py
import numpy

from support import (BACKEND, ERROR, LONG, PROGRAM, WARNING, Reference, Scratch, clip_file,
                     command_of, execute, flip_bit, main, read_attributes, read_clip, read_header,
                     result_files, run, start, state_of, trace_complete)
from tables import table

DIMENSIONS = {
    "time": ("frame",),
    "video": ("frame", "height", "width", "channel"),
    "latents": ("latent_frame", "latent_channel", "latent_height", "latent_width"),
    "token_ids": ("token",),
    "prompt_embeds": ("token", "embedding"),
    "negative_prompt_embeds": ("token", "embedding"),
}
TYPES = {"time": "float64", "video": "uint8", "latents": "float32", "token_ids": "int32",
         "prompt_embeds": "float32", "negative_prompt_embeds": "float32"}


def is_scale(dataset):
    return h5py.h5ds.is_scale(dataset.id)


def arrays(file):
    """Names of the datasets that are not dimension scales."""
    return {name for name, dataset in file.items() if not is_scale(dataset)}


class Output(Scratch):
    """A test with two short clips to make."""

    def setUp(self):
        super().setUp()
        self.reference = Reference("rotary")
        self.output = self.folder / "output"

    def options(self, **more):
        return self.reference.options(self.output, **{"sample__steps": 3,
                                                      "prompt__text": ["one", "two"]} | more)


class FilesTest(Output):
    def test_index(self):
        ranks = 3 if LONG else 1
        self.make(self.options(prompt__text=["Ein Café", "two"], sample__seed=7), ranks)
        self.assertEqual({path.name for path in self.output.iterdir()},
                         {"job.h5", "trace.h5", "clips"})
        self.assertEqual({path.name for path in (self.output / "clips").iterdir()},
                         {"000000.h5", "000001.h5"})
        with h5py.File(self.output / "job.h5", "r") as job:
            facts = read_attributes(job)
            self.assertEqual(facts["program"], "reelmesh")
            version = execute([PROGRAM, "--version"]).output
            self.assertIn(facts["version"], version)
            self.assertIn(facts["git_revision"], version)
            given = facts["options"].splitlines()
            for line in ("prompt.text = Ein Café", "prompt.text = two", "sample.seed = 7",
                         "sample.steps = 3", f"output.path = {self.output}"):
                self.assertIn(line, given)
            self.assertIn(f"{ranks} rank", facts["plan"])
            self.assertEqual(list(facts["hosts"]), [socket.gethostname()] * ranks)
            start, end = (datetime.datetime.fromisoformat(facts[name].replace("Z", "+00:00"))
                          for name in ("start", "end"))
            self.assertLessEqual(start, end)
            now = datetime.datetime.now(datetime.timezone.utc)
            self.assertLess(abs((now - end).total_seconds()), 600)

            self.assertEqual(sorted(job["clips"]), ["000000", "000001"])
            for i, (name, target) in enumerate((("clips/000000", "clips/000000.h5"),
                                                ("clips/000001", "clips/000001.h5"))):
                link = job.get(name, getlink=True)
                self.assertIsInstance(link, h5py.ExternalLink)
                self.assertEqual(link.filename, target)
                self.assertEqual(job[name].attrs["seed"], 7 + i)
                numpy.testing.assert_array_equal(job[name]["video"][()],
                                                 read_clip(self.output, i)["video"])
            self.assertGreater(len(job["trace/spans/rank"]), 0)
        moved = self.folder / "moved"  # links are relative: the folder can be moved
        self.output.rename(moved)
        with h5py.File(moved / "job.h5", "r") as job:
            self.assertEqual(job["clips/000001/video"].ndim, 4)

    def test_clip(self):
        self.make(self.options(output__embeddings="yes", prompt__negative="dark",
                               sample__fps=12))
        with h5py.File(clip_file(self.output, 1), "r") as clip:
            facts = read_attributes(clip)
            self.assertGreater(facts.pop("wall_seconds"), 0)
            self.assertRegex(facts.pop("fingerprint"), "^model [0-9a-f]{32}, backend [a-z]+, ")
            self.assertIn("1 rank", facts.pop("layout"))
            self.assertEqual(facts, {
                "Conventions": "CF-1.8", "format_version": 1, "title": "clip 1 of reelmesh",
                "prompt": "two", "negative_prompt": "dark", "seed": 43,
                "steps": 3, "guidance": 6.0, "fps": 12.0, "model": str(self.reference.model),
                "scheduler": "CogVideoXDPMScheduler", "dtype": "float32"})
            shapes = {"video": (16, 112, 48, 3), "time": (16,), "latents": (4, 4, 14, 6),
                      "token_ids": (19,), "prompt_embeds": (19, 32), "negative_prompt_embeds": (19, 32)}
            self.assertEqual(arrays(clip), set(shapes))
            for name, shape in shapes.items():
                self.assertEqual(clip[name].shape, shape)
                self.assertEqual(clip[name].dtype, TYPES[name])
                dims = clip[name].dims
                self.assertEqual(tuple(dim.label for dim in dims), DIMENSIONS[name])
                self.assertEqual(tuple(dim[0].name for dim in dims),
                                 tuple("/" + dim for dim in DIMENSIONS[name]))
            self.assertEqual({name for name, d in clip.items() if is_scale(d)},
                             {dim for name in shapes for dim in DIMENSIONS[name]})
            self.assertFalse(numpy.array_equal(clip["prompt_embeds"][()],
                                               clip["negative_prompt_embeds"][()]))

    def test_h5dump(self):
        self.make(self.options(prompt__text="one"))
        index = execute(["h5dump", "-H", self.output / "job.h5"])
        self.assertEqual(index.status, 0, index)
        for text in ('EXTERNAL_LINK "000000"', 'EXTERNAL_LINK "trace"', 'DATASET "video"'):
            self.assertIn(text, index.output)
        # Dumps all values, so that every chunk is read and its checksum verified.
        for path in result_files(self.output):
            dump = execute(["h5dump", path])
            self.assertEqual((dump.status, dump.errors), (0, ""), path)
        header = execute(["h5dump", "-H", clip_file(self.output)]).output
        self.assertIn("SIMPLE { ( 16, 112, 48, 3 )", header)

    def test_xarray(self):
        try:
            import h5netcdf  # noqa: F401
            import netCDF4  # noqa: F401
            import xarray
        except ImportError as error:
            print(f"skipped: {error} (Debian: python3-xarray, python3-h5netcdf, python3-netcdf4)",
                  flush=True)
            self.skipTest(str(error))
        self.make(self.options(prompt__text="Ein Café", output__embeddings="yes"))
        video = read_clip(self.output)["video"]
        for engine in ("h5netcdf", "netcdf4"):
            with (self.subTest(engine=engine),
                  xarray.open_dataset(clip_file(self.output), engine=engine) as clip):
                self.assertEqual(set(clip.data_vars), set(DIMENSIONS) - {"time"})
                for name, dims in DIMENSIONS.items():
                    self.assertEqual(clip[name].dims, dims)
                self.assertEqual(clip.attrs["prompt"], "Ein Café")
                self.assertEqual(list(clip.frame.values), list(range(16)))
                self.assertEqual(clip.video.coords["time"].values[8], 1)  # 8 frames per second
                numpy.testing.assert_array_equal(clip.video.values, video)
            with (self.subTest(index=engine),
                  xarray.open_dataset(self.output / "job.h5", group="videos/16x112x48",
                                      engine=engine) as clips):
                self.assertEqual(clips.video.dims, ("clip",) + DIMENSIONS["video"])
                self.assertEqual(list(clips.prompt.values), ["Ein Café"])
                self.assertEqual((list(clips.seed.values), list(clips["clip"].values)), ([42], [0]))
                numpy.testing.assert_array_equal(clips.video.values, video[numpy.newaxis])

    def test_datasets_that_are_not_wanted(self):
        for more, kept in ((dict(output__video="no"), {"latents", "token_ids"}),
                           (dict(output__latents="no"), {"video", "time", "token_ids"}),
                           (dict(output__video="no", output__latents="no",
                                 output__embeddings="yes", sample__guidance=1),
                            {"prompt_embeds", "token_ids"})):
            with self.subTest(kept=kept):
                self.make(self.options(output__if_exists="replace", **more), ranks=3 if LONG else 1)
                with h5py.File(clip_file(self.output), "r") as clip:
                    self.assertEqual(arrays(clip), kept)


class TraceTest(Output):
    def spans(self):
        with h5py.File(self.output / "trace.h5", "r") as trace:
            return table(trace, "spans"), table(trace, "ranks")

    def check_order(self, spans, tolerance_ns=20_000_000):
        """All spans are on one clock: the stages of a clip follow each other across ranks."""
        end = spans["start_ns"] + spans["duration_ns"]
        for clip in (0, 1):
            of_clip = spans["clip"] == clip
            stages = [of_clip & (spans["name"] == name)
                      for name in (b"encode", b"denoise_step", b"decode", b"write")]
            for before, after in zip(stages, stages[1:]):
                self.assertTrue(before.any() and after.any())
                self.assertLessEqual(end[before].max(),
                                     spans["start_ns"][after].min() + tolerance_ns)

    def test_spans(self):
        self.make(self.options(parallel__text=2, parallel__replicas=1, parallel__mode="split"), ranks=5)
        spans, ranks = self.spans()
        self.assertEqual(set(spans.dtype.names), {"rank", "lane", "name", "clip", "step", "layer",
                                                  "start_ns", "duration_ns", "bytes", "flops",
                                                  "memory_bytes"})
        self.assertLessEqual({b"load", b"encode", b"denoise_step", b"decode", b"handover",
                              b"write"}, set(spans["name"]))
        self.assertGreaterEqual(spans["start_ns"].min(), 0)
        self.assertTrue((spans["duration_ns"] >= 0).all())
        self.assertTrue((spans["bytes"] >= 0).all())
        self.assertTrue((spans["step"] == -1)[spans["name"] != b"denoise_step"].all())
        holders = {b"encode": {0, 1}, b"decode": {4}, b"write": {4}, b"load": {0, 1, 2, 3, 4}}
        for name, expected in holders.items():
            self.assertEqual(set(spans["rank"][spans["name"] == name]), expected, name)
        steps = spans[spans["name"] == b"denoise_step"]
        self.assertTrue((steps["flops"] > 0).all())
        self.assertTrue((steps["bytes"] > 0).all())  # two ranks share the attention
        for clip in (0, 1):
            found = sorted(zip(*(steps[steps["clip"] == clip][key] for key in ("rank", "step"))))
            self.assertEqual(found, [(rank, step) for rank in (2, 3) for step in range(3)])
        self.check_order(spans)

        self.assertEqual(list(ranks["rank"]), list(range(5)))
        self.assertEqual(list(ranks["role"]), [b"text"] * 2 + [b"denoise"] * 2 + [b"decode"])
        self.assertEqual(set(ranks["host"]), {socket.gethostname().encode()})
        self.assertEqual(set(ranks["device"] == b"cpu"), {not BACKEND})
        self.assertEqual(set(ranks["threads"]), {1})
        self.assertTrue((ranks["peak_memory_bytes"] > 1 << 20).all())
        with h5py.File(self.output / "job.h5", "r") as job:
            self.assertEqual(len(job.attrs["hosts"]), 5)

    def test_operations(self):
        """Spans of operations: in their stages, with all their work, which n ranks share."""
        kinds = (b"product", b"attention", b"convolution", b"norm")
        flops = {}
        for ranks in (1, 4 if LONG else 2):
            self.make(self.options(trace__level="ops", output__if_exists="replace",
                                   prompt__text="one", parallel__mode="phased"), ranks)
            spans = self.spans()[0]
            end = spans["start_ns"] + spans["duration_ns"]
            works = numpy.isin(spans["name"], kinds)
            for name in kinds:
                of_kind = spans[spans["name"] == name]
                self.assertGreater(of_kind["flops"].sum(), 0, name)
                self.assertTrue((of_kind["memory_bytes"] > 0).all(), name)
                self.assertEqual(set(of_kind["lane"]), {b"compute"}, name)
            exchanges = spans[spans["name"] == b"exchange"]
            self.assertEqual(set(exchanges["lane"]), {b"exchange"})
            self.assertEqual(exchanges["bytes"].sum() > 0, ranks > 1)
            for i, stage in enumerate(spans):
                if stage["name"] not in (b"encode", b"denoise_step", b"decode"):
                    continue
                within = (works & (spans["rank"] == stage["rank"]) & (end <= end[i]) &
                          (spans["start_ns"] >= stage["start_ns"]))
                for work in ("flops", "memory_bytes"):
                    self.assertEqual(spans[work][within].sum(), stage[work], (work, stage))
            for rank in range(ranks):
                self.check_nesting(spans[spans["rank"] == rank])
            flops[ranks] = {name: spans["flops"][spans["name"] == name].sum() for name in kinds}
        alone, together = flops.values()
        for name in (b"attention", b"convolution", b"norm"):
            self.assertEqual(together[name], alone[name], name)
        # Every rank computes the modulation, which has few rows.
        self.assertGreaterEqual(together[b"product"], alone[b"product"])
        self.assertLess(together[b"product"], 1.05 * alone[b"product"])

    def check_nesting(self, spans):
        """Each span ends before or with those that are open when it starts."""
        end_of = lambda span: span["start_ns"] + span["duration_ns"]
        open_spans = []
        for span in spans:  # sorted by start
            while open_spans and end_of(open_spans[-1]) <= span["start_ns"]:
                open_spans.pop()
            if open_spans:
                self.assertLessEqual(end_of(span), end_of(open_spans[-1]), (span, open_spans[-1]))
            open_spans.append(span)

    def test_roles_are_whole(self):
        self.make(self.options())
        ranks = self.spans()[1]
        self.assertEqual(list(ranks["role"]), [b"text+denoise+decode"])

    def test_off(self):
        self.make(self.options(trace__level="off"))
        self.assertFalse((self.output / "trace.h5").exists())
        with h5py.File(self.output / "job.h5", "r") as job:
            self.assertNotIn("trace", job)
            self.assertEqual(sorted(job["clips"]), ["000000", "000001"])


class IfExistsTest(Output):
    def state(self):
        """As state_of, by name."""
        return {path.name: state for path, state in state_of(self.output / "clips").items()}

    def test_fail(self):
        self.make(self.options())
        before = self.state()
        for ranks in (1, 3) if LONG else (1,):
            for choice in ({}, {"output__if_exists": "fail"}):
                outcome = run(self.options(**choice), ranks)
                self.assertEqual(outcome.status, 73, outcome)
                self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                self.assertIn(str(self.output), outcome.lines(ERROR)[0])
                self.assertIn("if-exists", outcome.lines(ERROR)[0])
        self.assertEqual(self.state(), before)
        self.output.rename(self.folder / "old")
        self.output.mkdir()  # an empty folder is no job
        self.make(self.options())

    def test_resume_makes_what_is_missing(self):
        for ranks in (1, 3) if LONG else (3,):
            with self.subTest(ranks=ranks):
                self.make(self.options(output__if_exists="replace"), 1)
                before, clips = self.state(), [read_clip(self.output, i) for i in (0, 1)]
                clip_file(self.output, 0).unlink()
                (self.output / "clips" / ".000000.h5.partial").write_bytes(b"left over")
                outcome = run(self.options(output__if_exists="resume"), ranks)
                self.assertEqual(outcome.status, 0, outcome)
                self.assertIn("1 of 2 clips are complete already", outcome.errors)
                after = self.state()
                self.assertEqual(set(after), {"000000.h5", "000001.h5"})
                self.assertEqual(after["000001.h5"], before["000001.h5"])
                self.assertNotEqual(after["000000.h5"], before["000000.h5"])
                for i in (0, 1):
                    for name in ("video", "latents"):
                        numpy.testing.assert_array_equal(read_clip(self.output, i)[name],
                                                         clips[i][name])
                with h5py.File(self.output / "job.h5", "r") as job:
                    self.assertEqual([job[f"clips/{i:06}"].attrs["seed"] for i in (0, 1)],
                                     [42, 43])

    def test_resume_with_nothing_missing(self):
        self.make(self.options())
        before = self.state()
        for ranks in (1, 3) if LONG else (1,):
            self.make(self.options(output__if_exists="resume"), ranks)
            self.assertEqual(self.state(), before)

    def test_resume_makes_damaged_clips_and_those_of_another_job_anew(self):
        self.make(self.options(prompt__text=["one", "two", "three", "four"]))
        before = self.state()
        damaged = clip_file(self.output, 0)
        os.truncate(damaged, damaged.stat().st_size // 2)
        outcome = run(self.options(prompt__text=["one", "another", "three"],
                                   output__if_exists="resume"))
        self.assertEqual(outcome.status, 0, outcome)
        earlier = self.output / "earlier"
        self.assertEqual(outcome.lines("3 clip files"), [
            f"3 clip files are not of this job, or damaged: moved to {earlier}"])
        self.assertEqual(sorted(path.name for path in earlier.iterdir()),
                         ["000000.h5", "000001.h5", "000003.h5"])
        after = self.state()
        self.assertEqual(sorted(after), ["000000.h5", "000001.h5", "000002.h5"])
        with h5py.File(self.output / "job.h5") as job:
            self.assertEqual(sorted(job["clips"]), ["000000", "000001", "000002"])
        self.assertEqual(after["000002.h5"], before["000002.h5"])
        self.assertNotEqual(after["000000.h5"], before["000000.h5"])
        self.assertNotEqual(after["000001.h5"], before["000001.h5"])
        self.assertEqual(read_clip(self.output, 1)["attributes"]["prompt"], "another")
        self.assertEqual(read_clip(self.output, 0)["video"].ndim, 4)

    def test_resume_compares_options_and_weights(self):
        model = self.folder / "model"
        shutil.copytree(self.reference.model, model)
        options = dict(model__path=model, prompt__text=["one"], output__if_exists="resume")
        self.make(self.options(**options))
        before = self.state()
        # The same weights under another spelling of the path, and in another folder.
        self.make(self.options(**options | dict(model__path=f"{model}/../model")))
        copy = self.folder / "copy"
        shutil.copytree(model, copy)
        self.make(self.options(**options | dict(model__path=copy)))
        self.assertEqual(self.state(), before)
        if not BACKEND:  # options of GPUs
            self.make(self.options(**options | dict(
                numerics__tf32="yes", numerics__reproducible="no", numerics__attention="own")))
            self.assertEqual(self.state(), before)
        # Another option, and then other weights under the same path.
        self.make(self.options(**options | dict(sample__dynamic_guidance="no")))
        guided = self.state()
        self.assertNotEqual(guided, before)
        for path in (model / "vae").glob("*.safetensors"):
            header, data = read_header(path)
            if "decoder.conv_out.conv.weight" in header:
                begin = header["decoder.conv_out.conv.weight"]["data_offsets"][0]
                with open(path, "r+b") as file:
                    file.seek(path.stat().st_size - len(data) + begin + 2)
                    file.write(b"\x42")
        self.make(self.options(**options | dict(sample__dynamic_guidance="no")))
        self.assertNotEqual(self.state(), guided)

    def test_resume_notices_one_changed_byte(self):
        model = self.folder / "model"
        shutil.copytree(self.reference.model, model)
        options = self.options(model__path=model, prompt__text=["one"], output__if_exists="resume")
        cache = self.folder / "cache"
        environment = {"XDG_CACHE_HOME": str(cache)}
        time.sleep(2.1)  # hashes of younger files are not remembered
        self.make(options, environment=environment)
        before = self.state()
        entries = {path: path.read_text() for path in (cache / "reelmesh/hashes").iterdir()}
        files = sorted(model.glob("*/*.safetensors"))
        self.assertEqual(len(entries), len(files))
        self.make(options, 3 if LONG else 1, environment)
        self.assertEqual(self.state(), before)
        # One bit in the middle of the largest tensor; size and time of modification stay.
        path = max((model / "transformer").glob("*.safetensors"), key=lambda p: p.stat().st_size)
        header, data = read_header(path)
        header.pop("__metadata__", None)
        begin, end = max((entry["data_offsets"] for entry in header.values()),
                         key=lambda offsets: offsets[1] - offsets[0])
        middle = (begin + end) // 2
        times = path.stat()
        flip_bit(path, path.stat().st_size - len(data) + middle)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.make(options, 2, environment)
        after = self.state()
        self.assertNotEqual(after, before)
        # Without a folder for them nothing is remembered, and the result is the same.
        (cache / "reelmesh/hashes").rename(self.folder / "away")
        (cache / "reelmesh/hashes").write_text("in the way")
        self.make(options, environment=environment)
        self.assertEqual(self.state(), after)

    def test_without_locks(self):
        """Where files cannot be locked, the job says so and makes the same clips."""
        library = self.folder / "no_locks.so"
        source = pathlib.Path(__file__).resolve().parents[1] / "support" / "no_locks.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        outcome = run(self.options(restart__every=1), 3,
                      {"LD_PRELOAD": str(library), "NO_LOCKS_BELOW": str(self.output.resolve())})
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(len(outcome.lines(WARNING)), 1, outcome)
        self.assertIn("cannot be locked here (No locks available)", outcome.lines(WARNING)[0])
        self.assertTrue(trace_complete(self.output))
        expected = self.make(self.options() | {"output.path": self.folder / "expected"}, 3)
        for index in (0, 1):
            found, clip = read_clip(self.output, index), read_clip(expected, index)
            for name in ("video", "latents"):
                numpy.testing.assert_array_equal(found[name], clip[name])

    def test_two_jobs_on_one_folder(self):
        """The second one is refused, and the first one is not harmed."""
        first = start(command_of(self.options(prompt__text=["one"] * 8)), stderr=subprocess.DEVNULL)
        while not (self.output / ".lock").exists() and first.poll() is None:
            time.sleep(0.01)
        outcome = run(self.options(output__if_exists="replace"))
        self.assertEqual(outcome.status, 73, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        self.assertIn("is in use by another job (process ", outcome.lines(ERROR)[0])
        self.assertEqual(first.wait(60), 0)
        for i in range(8):
            self.assertEqual(read_clip(self.output, i)["video"].ndim, 4)
        self.assertFalse((self.output / ".lock").exists())

    def test_replace(self):
        self.make(self.options(prompt__text=["one", "two", "three"]))
        before = self.state()
        theirs = self.output / "notes.txt"
        theirs.write_text("mine")
        self.make(self.options(output__if_exists="replace"))
        after = self.state()
        self.assertEqual(set(after), {"000000.h5", "000001.h5"})
        for name in after:
            self.assertNotEqual(after[name], before[name])
        self.assertEqual(theirs.read_text(), "mine")


if __name__ == "__main__":
    main()

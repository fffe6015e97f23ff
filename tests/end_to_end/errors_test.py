"""Bad input and failures at run time: one error message, the documented exit status, and no result
file under its final name."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest.mock

from support import (ERROR, LONG, MPIRUN, PROGRAM, Reference, Scratch, arguments, clip_file, command_of,
                     execute, finish, main, read_header, result_files, run, start, write_header)

USAGE, DATA_ERROR, NO_INPUT, UNAVAILABLE, CANNOT_CREATE, IO_ERROR = 64, 65, 66, 69, 73, 74
RANKS = (1, 3) if LONG else (1,)


class Refusal(Scratch):
    def setUp(self):
        super().setUp()
        self.reference = Reference("sincos")
        self.output = self.folder / "output"

    def options(self, **more):
        return self.reference.options(self.output, **{"prompt__text": ["one", "two"]} | more)

    def copy_model(self, kind="sincos"):
        """A copy of a checkpoint that the test may damage, without the reference files."""
        model = self.folder / "model"
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(Reference(kind).model, model,
                        ignore=shutil.ignore_patterns("reference.*"))
        return model

    def check_outcome(self, outcome, status, *told):
        """Expects this exit status and exactly one error line, which contains all of `told`."""
        self.assertEqual(outcome.status, status, outcome)
        errors = outcome.lines(ERROR)
        self.assertEqual(len(errors), 1, outcome)
        self.assertEqual((outcome.errors + outcome.output).count(ERROR), 1, outcome)
        for text in told:
            self.assertIn(str(text), errors[0])

    def check_refused(self, options, status, *told, ranks=RANKS, output_made=False):
        for count in ranks:
            with self.subTest(ranks=count):
                outcome = run(options, count)
                self.check_outcome(outcome, status, *told)
                self.assertEqual(result_files(self.output), [])
                if not output_made:
                    self.assertFalse(self.output.exists())


class ModelTest(Refusal):
    WEIGHTS = pathlib.Path("transformer") / "diffusion_pytorch_model.safetensors"

    def spoil(self, change):
        """Options for a copy of the model whose transformer file `change` has modified:
        change(header, data) edits the header, and may return other data."""
        model = self.copy_model()
        path = model / self.WEIGHTS
        header, data = read_header(path)
        data = change(header, data) or data
        write_header(path, header, data)
        return self.options(model__path=model)

    def test_the_copy_itself_works(self):
        self.make(self.spoil(lambda header, data: None))

    def test_missing_folder(self):
        missing = self.folder / "missing"
        self.check_refused(self.options(model__path=missing), NO_INPUT, missing)

    def test_missing_part(self):
        for part in ("transformer", "vae", "text_encoder", "tokenizer", "scheduler"):
            with self.subTest(part=part):
                model = self.copy_model()
                shutil.rmtree(model / part)
                self.check_refused(self.options(model__path=model), NO_INPUT, model / part,
                                   ranks=(1,))
        self.check_refused(self.options(model__vae=self.folder / "nowhere"), NO_INPUT, "nowhere")

    def test_missing_weights(self):
        model = self.copy_model()
        (model / self.WEIGHTS).unlink()
        self.check_refused(self.options(model__path=model), NO_INPUT, model / "transformer")

    def test_missing_tensor(self):
        name = "transformer_blocks.1.ff.net.2.weight"

        def without(header, data):
            # Offsets must have no gaps, so the tensor is renamed instead of removed.
            header["other.weight"] = header.pop(name)

        self.check_refused(self.spoil(without), DATA_ERROR, name, "missing", ranks=(1, 3))

    def test_unexpected_shape(self):
        name = "transformer_blocks.0.attn1.to_q.weight"

        def transposed(header, data):
            rows, columns = header[name]["shape"]
            header[name]["shape"] = [rows * 2, columns // 2]

        self.check_refused(self.spoil(transposed), DATA_ERROR, name, "shape", self.WEIGHTS)

    def test_truncated_file(self):
        for part, stem in (("transformer", "diffusion_pytorch_model"), ("vae",
                           "diffusion_pytorch_model"), ("text_encoder", "model")):
            with self.subTest(part=part):
                model = self.copy_model()
                path = model / part / f"{stem}.safetensors"
                os.truncate(path, path.stat().st_size - 1000)
                self.check_refused(self.options(model__path=model), DATA_ERROR, path,
                                   ranks=RANKS if part == "transformer" else (1,))
        os.truncate(path, 100)  # within the header
        self.check_refused(self.options(model__path=model), DATA_ERROR, path, ranks=(1,))
        os.truncate(path, 0)
        self.check_refused(self.options(model__path=model), DATA_ERROR, path, ranks=(1,))

    def test_lying_header(self):
        name = "proj_out.weight"

        def lie(key, value):
            def change(header, data):
                header[name][key] = value
            return change

        offsets = read_header(self.reference.model / self.WEIGHTS)[0][name]["data_offsets"]
        lies = {
            "beyond the end": lie("data_offsets", [offsets[0], 1 << 40]),
            "backwards": lie("data_offsets", offsets[::-1]),
            "overlapping": lie("data_offsets", [0, offsets[1] - offsets[0]]),
            "negative": lie("data_offsets", [-4, offsets[1]]),
            "huge": lie("shape", [1 << 62, 1 << 62]),
            "more than its bytes": lie("shape", [1 << 20, 1 << 10]),
            "unknown type": lie("dtype", "F33"),
        }
        for said, change in lies.items():
            with self.subTest(lie=said):
                self.check_refused(self.spoil(change), DATA_ERROR, self.WEIGHTS,
                                   ranks=RANKS if said == "beyond the end" else (1,))

    def test_lying_header_length(self):
        model = self.copy_model()
        path = model / self.WEIGHTS
        blob = path.read_bytes()
        for length in (1 << 63, (1 << 64) - 1, len(blob), 0):
            with self.subTest(length=length):
                path.write_bytes(length.to_bytes(8, "little") + blob[8:])
                self.check_refused(self.options(model__path=model), DATA_ERROR, path, ranks=(1,))

    def test_index_that_points_outside(self):
        model = self.copy_model("rotary")
        path = model / "transformer" / "diffusion_pytorch_model.safetensors.index.json"
        index = json.loads(path.read_text())
        name = sorted(index["weight_map"])[0]
        shutil.copy(path.parent / index["weight_map"][name], self.folder / "outside.safetensors")
        for outside in ("../../outside.safetensors", str(self.folder / "outside.safetensors")):
            index["weight_map"][name] = outside
            path.write_text(json.dumps(index))
            self.check_refused(self.options(model__path=model, sample__height=112,
                                            sample__width=48), DATA_ERROR, path, outside)


class OptionTest(Refusal):
    def test_unknown_key_in_the_file(self):
        config = self.folder / "job.cfg"
        for line, nearest in (("[sample]\nstep = 4", "sample.steps"),
                              ("[sampel]\nsteps = 4", "[sample]"),
                              ("[parallel]\nshards = height", "parallel.shard"),
                              ("[output]\nif_exists = replace", "output.if-exists")):
            with self.subTest(line=line):
                config.write_text(line + "\n")
                self.check_refused({"config": config} | self.options(), USAGE, config, nearest,
                                   ranks=RANKS if nearest == "parallel.shard" else (1,))

    def test_unknown_option(self):
        self.check_refused(self.options(sample__stepz=4), USAGE, "sample.steps")

    def test_sizes(self):
        for more in (dict(sample__height=104), dict(sample__width=72), dict(sample__height=100)):
            option, value = next(iter(more.items()))
            with self.subTest(option=option, value=value):
                self.check_refused(self.options(**more), USAGE, option.replace("__", "."), value,
                                   "multiple of 16", ranks=RANKS if value == 104 else (1,))

    def test_values(self):
        for more in (dict(sample__steps=-1), dict(sample__steps=0), dict(sample__guidance="nan"),
                     dict(sample__frames="many"), dict(numerics__dtype="float64"),
                     dict(parallel__shard="rows")):
            option, value = next(iter(more.items()))
            with self.subTest(option=option, value=value):
                self.check_refused(self.options(**more), USAGE, option.replace("__", "."),
                                   ranks=(1,))

    def test_no_prompts(self):
        options = self.options()
        del options["prompt.text"]
        self.check_refused(options, USAGE, "prompt.text")
        self.check_refused(options | {"prompt.file": self.folder / "missing.txt"}, NO_INPUT,
                           "missing.txt")

    def test_more_groups_than_ranks(self):
        # tests/plan does this for all numbers of ranks.
        split = dict(parallel__mode="split")
        cases = ((1, dict(parallel__replicas=2)), (3, dict(parallel__ulysses=4)),
                 (3, dict(parallel__text=4)), (3, split | dict(parallel__replicas=2)),
                 (3, split | dict(parallel__text=2, parallel__decode=1)))
        for ranks, more in cases if LONG else cases[:1]:
            with self.subTest(ranks=ranks, **more):
                self.check_refused(self.options(**more), UNAVAILABLE, "parallel.", f"{ranks}",
                                   ranks=(ranks,))

    def test_sizes_in_a_prompt_file(self):
        """The message names the line."""
        prompts = self.folder / "clips.jsonl"
        prompts.write_text('{"prompt": "one"}\n{"prompt": "two", "height": 104}\n')
        options = self.options(prompt__file=prompts)
        del options["prompt.text"]
        self.check_refused(options, USAGE, "clips.jsonl:2: height", 104)

    def test_more_memory_than_the_host_has(self):
        self.check_refused(
            self.options(sample__height=16384, sample__width=16384, sample__frames=9985),
            UNAVAILABLE, "together, the host has", ranks=(1, 2))

    def test_split_needs_three_ranks(self):
        self.check_refused(self.options(parallel__mode="split"), UNAVAILABLE, "parallel.mode",
                           "3 ranks", ranks=(1, 2) if LONG else (1,))

    @unittest.mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""})
    def test_backend_without_a_gpu(self):
        self.check_refused(self.options(device__backend="cuda"), UNAVAILABLE,
                           "device.backend is cuda, but ")

    def test_speeds_of_other_ranks(self):
        self.check_refused(self.options(device__speeds="1,2"), UNAVAILABLE, "device.speeds",
                           "2 speeds", "expected 1, one for each rank", ranks=(1,))

    def test_device_map_names_a_rank_that_is_not_there(self):
        self.check_refused(self.options(parallel__device_map="0-1:0,2:5"), UNAVAILABLE,
                           "parallel.device-map", "5")
        path = self.folder / "map.json"
        path.write_text('{"": 3}')
        self.check_refused(self.options(parallel__device_map=path), UNAVAILABLE,
                           "parallel.device-map")


class OutputErrorTest(Refusal):
    def test_output_that_exists(self):
        self.output.mkdir()
        (self.output / "precious").write_text("mine")
        self.check_refused(self.options(), CANNOT_CREATE, self.output, "if-exists",
                           output_made=True)
        self.assertEqual([path.name for path in self.output.iterdir()], ["precious"])

    def test_unwritable_output(self):
        # Root can write anywhere except below a regular file and in /proc.
        (self.folder / "file").write_text("")
        for path in (self.folder / "file" / "output", pathlib.Path("/proc/reelmesh/output")):
            with self.subTest(path=path):
                self.output = path
                for ranks in RANKS:
                    self.check_outcome(run(self.options(), ranks), CANNOT_CREATE, path)

    def test_folder_in_which_nothing_can_be_made(self):
        self.output.mkdir()
        attribute = subprocess.run(["chattr", "+i", self.output], capture_output=True, text=True)
        if attribute.returncode != 0:
            print(f"skipped: {attribute.stderr.strip()}", flush=True)
            self.skipTest("chattr +i is not possible here")
        try:
            self.check_refused(self.options(), CANNOT_CREATE, self.output, output_made=True)
        finally:
            subprocess.run(["chattr", "-i", self.output], check=True)

    def test_full_disk(self):
        # Room for some of the clips, but not for all.
        disk = self.folder / "disk"
        disk.mkdir()
        sizes = {1: "2200k", 3: "1200k"} if LONG else {3: "1200k"}
        for ranks, size in sizes.items():
            with self.subTest(ranks=ranks, size=size):
                mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk],
                                       capture_output=True, text=True)
                if mount.returncode != 0:
                    print(f"skipped: {mount.stderr.strip()}", flush=True)
                    self.skipTest("no file system can be mounted here")
                try:
                    self.output = disk / "output"
                    outcome = run(self.options(prompt__text=["text"] * 8), ranks)
                    self.check_outcome(outcome, IO_ERROR, self.output / "clips", "space")
                    # Clips completed before stay and are intact; there is no index of them.
                    names = [path.name for path in result_files(self.output)]
                    self.assertNotIn("job.h5", names)
                    self.assertNotIn("trace.h5", names)
                    self.assertLess(len(names), 8)
                    for path in result_files(self.output):
                        dump = execute(["h5dump", path])
                        self.assertEqual((dump.status, dump.errors), (0, ""), path)
                    self.assertEqual(list(self.output.glob("**/.*")), [])
                finally:
                    subprocess.run(["umount", disk], check=True)


def programs_of(launcher):
    """Process ids of the ranks that this mpirun has started."""
    ranks = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == launcher and os.path.samefile(entry / "exe", PROGRAM):
                ranks.append(int(entry.name))
        except OSError:
            continue  # the process has ended
    return sorted(ranks)


class RankTest(Refusal):
    """One rank fails while the others wait for it in a collective."""

    LIMIT = 15  # seconds in which the job must have ended

    def check_nothing_final(self):
        self.assertEqual(result_files(self.output), [])

    def mpirun(self, *ranks):
        """Runs one job with a separate command for each rank."""
        words = [MPIRUN]
        for rank in ranks:
            words += ["-n", 1, *rank, ":"]
        return execute(words[:-1], timeout=self.LIMIT)

    def words(self, **more):
        return [PROGRAM, "run"] + arguments(self.options(**more))

    def test_a_rank_finds_a_damaged_file(self):
        # As if one host had a damaged disk: rank 0 finds its own files good and goes on.
        model = self.copy_model()
        path = model / ModelTest.WEIGHTS
        os.truncate(path, path.stat().st_size - 1000)
        good, bad = self.words(), self.words(model__path=model)
        for place in (1, 2) if LONG else (2,):
            with self.subTest(rank=place):
                self.output.exists() and shutil.rmtree(self.output)
                outcome = self.mpirun(*[bad if rank == place else good for rank in range(3)])
                self.check_outcome(outcome, DATA_ERROR, path)
                self.check_nothing_final()

    @unittest.skipUnless(LONG, "with REELMESH_LONG=1")
    def test_a_rank_finds_no_file(self):
        model = self.copy_model()
        (model / "vae" / "config.json").unlink()
        bad = self.words(model__path=model, parallel__mode="split")
        good = self.words(parallel__mode="split")
        outcome = self.mpirun(good, good, bad)
        self.check_outcome(outcome, NO_INPUT, model / "vae" / "config.json")
        self.check_nothing_final()

    def test_a_rank_has_no_memory(self):
        # Enough to start, but too little to decode a clip of this size.
        size = dict(prompt__text="one", sample__height=512, sample__width=512, sample__frames=9,
                    sample__steps=1)
        reference = Reference("rotary")
        words = [PROGRAM, "run"] + arguments(reference.options(self.output, **size))
        limit = 140000  # KiB
        limited = ["sh", "-c", f'ulimit -d {limit}; exec "$0" "$@"'] + words
        cases = ((words, words, limited), (limited, limited, limited), (limited,))
        for ranks in cases if LONG else cases[:1]:
            with self.subTest(limited=[rank == limited for rank in ranks]):
                self.output.exists() and shutil.rmtree(self.output)
                self.check_outcome(self.mpirun(*ranks), UNAVAILABLE, "memory")
                self.check_nothing_final()

    def test_a_rank_is_killed_while_all_denoise(self):
        for mode in ("phased", "split") if LONG else ("split",):
            for place in (0, 2) if LONG else (2,):
                with self.subTest(mode=mode, rank=place):
                    self.output.exists() and shutil.rmtree(self.output)
                    options = self.options(prompt__text="one", sample__steps=1000,
                                           parallel__mode=mode)
                    began = time.monotonic()
                    with start(command_of(options, 3), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE) as job:
                        said = ""
                        while "largest share" not in said:  # the plan is printed, work begins
                            line = job.stderr.readline()
                            self.assertTrue(line, said)
                            said += line
                        time.sleep(1)
                        ranks = programs_of(job.pid)
                        self.assertEqual(len(ranks), 3, said)
                        os.kill(ranks[place], signal.SIGKILL)
                        killed = time.monotonic()
                        outcome = finish(job, began, self.LIMIT)
                    self.assertLess(time.monotonic() - killed, self.LIMIT)
                    self.assertNotEqual(outcome.status, 0, outcome)
                    self.check_nothing_final()
                    for rank in ranks:  # no rank is left behind
                        self.assertFalse(pathlib.Path(f"/proc/{rank}/exe").exists())
                    # The remaining files do not prevent the next run.
                    self.make(self.options(prompt__text="one", output__if_exists="resume"))
                    self.assertTrue(clip_file(self.output).exists())


if __name__ == "__main__":
    main()

"""Failures at run time: one error message, the documented exit status, and no result file under its
final name. Bad inputs are in bad_inputs_test.py."""

import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest.mock

from support import (ERROR, LONG, MPIRUN, PROGRAM, Reference, Scratch, arguments, clip_file,
                     command_of, execute, finish, launch, left_behind, main, only_long, programs_of,
                     result_files, run, start)

DATA_ERROR, NO_INPUT, UNAVAILABLE, CANNOT_CREATE, IO_ERROR = 65, 66, 69, 73, 74
RANKS = (1, 3) if LONG else (1,)
WEIGHTS = pathlib.Path("transformer") / "diffusion_pytorch_model.safetensors"


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


class LaunchTest(Refusal):
    def test_early_errors_on_many_ranks_return(self):
        """mpirun 4.1.4 waits for ever for a rank that ends with an error before all are started."""
        calls = {"unknown option": (64, ["run", "--nonsense"]),
                 "missing prompts": (66, ["run", "--prompt.file", "nope.txt", "--model.path",
                                          self.reference.model, "--output.path", self.output]),
                 "missing job file": (66, ["train", "--config", "nope.cfg"]),
                 "unknown subcommand": (64, ["runn"]), "help": (0, ["run", "--help"])}
        for name, (status, words) in calls.items():
            for _ in range(20 if LONG else 1):
                with self.subTest(call=name):
                    outcome = execute([MPIRUN, "-n", "32", PROGRAM, *words], timeout=120)
                    self.assertEqual(outcome.status, status, outcome)
                    self.assertEqual(len(outcome.lines(ERROR)), 0 if status == 0 else 1, outcome)
                    self.assertLess(outcome.seconds, 60, outcome)

    def test_ranks_with_unlike_jobs(self):
        """As of a job file that differs between hosts: here ranks have other options."""
        others = {"--prompt.text": dict(prompt__text=["one", "three"]),
                  "--output.path": dict(output__path=self.folder / "elsewhere"),
                  "--sample.steps": dict(sample__steps=3)}
        for name, other in others.items():
            with self.subTest(difference=name):
                words = [PROGRAM, "run", *arguments(self.options())]
                unlike = [PROGRAM, "run", *arguments(self.options(**other))]
                outcome = execute(launch(words, unlike, unlike))
                self.check_outcome(outcome, 64, "unlike jobs", name, "on ranks 1, 2")
                self.assertFalse(self.output.exists())
        # The same file of prompts with other contents, as on hosts that do not share it.
        link = self.folder / "prompts.txt"
        link.symlink_to("/proc/self/fd/9")

        def reading(name, text):
            (self.folder / name).write_text(text)
            command = [PROGRAM, "run", *arguments(self.options(prompt__text=[],
                                                               prompt__file=link))]
            return ["sh", "-c", 'exec 9<"$0"; exec "$@"', self.folder / name, *command]
        outcome = execute(launch(reading("a", "one\ntwo\n"), reading("b", "one\nthree\n")))
        self.check_outcome(outcome, 64, "unlike jobs", "clip 1", "three", "on rank 1")


class PlanTest(Refusal):
    def test_more_groups_than_ranks(self):
        # tests/plan does this for all numbers of ranks.
        split = dict(parallel__mode="split")
        cases = ((2, split), (3, dict(parallel__ulysses=4)), (3, dict(parallel__text=4)),
                 (3, split | dict(parallel__replicas=2)),
                 (3, split | dict(parallel__text=2, parallel__decode=1)))
        for ranks, more in cases if LONG else cases[1:2]:
            with self.subTest(ranks=ranks, **more):
                self.check_refused(self.options(**more), UNAVAILABLE, "parallel.", f"{ranks}",
                                   ranks=(ranks,))

    @unittest.mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""})
    def test_backend_without_a_gpu(self):
        self.check_refused(self.options(device__backend="cuda"), UNAVAILABLE,
                           "device.backend is cuda, but ")

    def test_more_memory_than_the_host_has_on_two_ranks(self):
        self.check_refused(
            self.options(sample__height=16384, sample__width=16384, sample__frames=9),
            UNAVAILABLE, "2 ranks need", "together, the host has", ranks=(2,))


class OutputErrorTest(Refusal):
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


    def test_largest_file(self):
        # Room for the first files of a job, but not for a clip of 5 MB.
        size = dict(sample__height=512, sample__width=512, sample__frames=9, sample__steps=1)
        for ranks in (1, 3) if LONG else (3,):
            with self.subTest(ranks=ranks):
                self.output.exists() and shutil.rmtree(self.output)
                words = [PROGRAM, "run"] + arguments(self.options(**size))
                limited = ["sh", "-c", 'ulimit -f 2000; exec "$0" "$@"'] + words
                launcher = [MPIRUN, "-n", ranks] if ranks > 1 else []
                # Not through shared memory, which is a larger file.
                network = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
                outcome = execute(launcher + limited, network)
                self.check_outcome(outcome, IO_ERROR, self.output / "clips", "large")
                self.assertEqual(result_files(self.output), [])
                self.assertEqual(list(self.output.glob("**/.*.partial")), [])


class RankTest(Refusal):
    """One rank fails while the others wait for it in a collective."""

    LIMIT = 15  # seconds in which the job must have ended

    def check_nothing_final(self):
        self.assertEqual(result_files(self.output), [])

    def mpirun(self, *ranks):
        """Runs one job with a separate command for each rank."""
        return execute(launch(*ranks), timeout=self.LIMIT)

    def words(self, **more):
        return [PROGRAM, "run"] + arguments(self.options(**more))

    def on_host_with(self, model, **more):
        """All ranks have the same options; to this one its model.path is `model`."""
        link = self.folder / "host_model"
        if not link.is_symlink():
            link.symlink_to("/proc/self/fd/9")
        return ["sh", "-c", 'exec 9<"$0"; exec "$@"', model, *self.words(model__path=link, **more)]

    def test_a_rank_finds_a_damaged_file(self):
        # As if one host had a damaged disk: rank 0 finds its own files good and goes on.
        model = self.copy_model()
        path = model / WEIGHTS
        os.truncate(path, path.stat().st_size - 1000)
        good, bad = self.on_host_with(self.reference.model), self.on_host_with(model)
        for place in (1, 2) if LONG else (2,):
            with self.subTest(rank=place):
                self.output.exists() and shutil.rmtree(self.output)
                outcome = self.mpirun(*[bad if rank == place else good for rank in range(3)])
                self.check_outcome(outcome, DATA_ERROR, self.folder / "host_model" / WEIGHTS)
                self.check_nothing_final()

    @only_long
    def test_a_rank_finds_no_file(self):
        model = self.copy_model()
        (model / "vae" / "config.json").unlink()
        bad = self.on_host_with(model, parallel__mode="split")
        good = self.on_host_with(self.reference.model, parallel__mode="split")
        outcome = self.mpirun(good, good, bad)
        self.check_outcome(outcome, NO_INPUT,
                           self.folder / "host_model" / "vae" / "config.json")
        self.check_nothing_final()

    def test_a_rank_may_have_too_little_memory(self):
        # Too little to start MPI, and too little for the job.
        for letter, limit in (("v", 250000), ("v", 360000), ("d", 50000), ("d", 90000)):
            with self.subTest(letter=letter, limit=limit):
                words = self.words(sample__height=512, sample__width=512)
                limited = ["sh", "-c", f'ulimit -{letter} {limit}; exec "$0" "$@"'] + words
                name = {"v": "address space", "d": "data"}[letter]
                self.check_outcome(self.mpirun(words, words, limited), UNAVAILABLE,
                                   f"rank 2: the limit of {name} (ulimit -{letter}) is ")
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
                        ranks = programs_of(job.pid, 3)
                        self.assertEqual(len(ranks), 3, said)
                        os.kill(ranks[place], signal.SIGKILL)
                        killed = time.monotonic()
                        outcome = finish(job, began, self.LIMIT)
                    self.assertLess(time.monotonic() - killed, self.LIMIT)
                    self.assertNotEqual(outcome.status, 0, outcome)
                    self.check_nothing_final()
                    self.assertEqual(left_behind(ranks), [])
                    # The remaining files do not prevent the next run.
                    self.make(self.options(prompt__text="one", output__if_exists="resume"))
                    self.assertTrue(clip_file(self.output).exists())


if __name__ == "__main__":
    main()

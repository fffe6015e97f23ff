"""One rank cannot write: an injected fault (support/faults.c) makes a call fail for one kind of file
on one rank. The job ends within seconds with one message, what was saved before is whole, and the
job goes on with the same bits."""

import pathlib
import shutil
import subprocess

from support import ERROR, LONG, WARNING, Reference, Scratch, main, read_clip, run

CANNOT_CREATE, IO_ERROR = 73, 74
CALLS = ("open", "write", "fsync", "rename", "close")
# Kind of file: the subcommand, and a part of the path while it is written.
FILES = {"clip": ("run", "/clips/."), "restart": ("run", "/restart/.0"), "trace": ("run", "/.trace.h5"),
         "index": ("run", "/.job.h5"), "sample": ("train", "/cache/."),
         "state": ("train", "/restart/.training"), "metrics": ("train", "/.metrics"),
         "lora": ("train", "/lora/.")}
RANKS = 2
# All combinations in tests/long; here each kind of file and each call at least once.
ROWS = [(kind, call, rank) for i, kind in enumerate(FILES) for j, call in enumerate(CALLS)
        for rank in range(RANKS) if LONG or (i + j) % len(CALLS) == 0 and rank == (i // 2 + j) % 2]


class FaultsTest(Scratch):
    def setUp(self):
        super().setUp()
        self.library = self.folder / "faults.so"
        source = pathlib.Path(__file__).resolve().parents[1] / "support" / "faults.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.library, source, "-ldl"], check=True)

    def options(self, command, output):
        if command == "run":
            return Reference("rotary").options(output, prompt__text=["one", "two"], restart__every=2,
                                               parallel__replicas=1, device__timeout="20s")
        clips = self.folder / "clips"
        if not clips.exists():
            maker = pathlib.Path(__file__).resolve().parents[2] / "tools" / "make_training_clips"
            subprocess.run([maker, clips, "--count", "2"], check=True, capture_output=True)
        model = pathlib.Path(__file__).resolve().parents[2] / "inputs" / "demo_model"
        return {"model.path": model, "data.path": clips, "train.steps": 4, "train.save-every": 2,
                "lora.rank": 2, "output.path": output, "device.timeout": "20s"}

    @staticmethod
    def results(command, output):
        if command == "run":
            return [read_clip(output, index)["video"].tobytes() for index in range(2)]
        return [(output / "lora" / "pytorch_lora_weights.safetensors").read_bytes()]

    def test_a_rank_that_cannot_write_ends_the_job(self):
        expected = {}
        for command in ("run", "train"):
            output = self.folder / f"expected_{command}"
            self.assertEqual(run(self.options(command, output), RANKS, name=command).status, 0)
            expected[command] = self.results(command, output)
        hit = 0
        for kind, call, rank in ROWS:
            with self.subTest(file=kind, call=call, rank=rank):
                command, path = FILES[kind]
                output, log = self.folder / "output", self.folder / "log"
                shutil.rmtree(output, ignore_errors=True)
                log.unlink(missing_ok=True)
                # HDF5 writes the header of a file twice as it creates it.
                outcome = run(self.options(command, output), RANKS,
                              {"LD_PRELOAD": str(self.library), "FAULT_RANK": str(rank),
                               "FAULT_SKIP": "2" if call == "write" and kind != "lora" else "0",
                               "FAULT_CALL": call, "FAULT_PATH": path, "FAULT_LOG": str(log)},
                              name=command)
                if not log.exists():  # this rank makes no such call
                    self.assertEqual(outcome.status, 0, outcome)
                    self.assertTrue(rank == 1 or call in ("write", "close"),
                                    "rank 0 makes all kinds of files")
                    continue
                hit += 1
                self.assertLess(outcome.seconds, 30, outcome)
                if kind == "trace":  # a job does not fail for its trace
                    self.assertEqual(outcome.status, 0, outcome)
                    self.assertEqual(len(outcome.lines(WARNING)), 1, outcome)
                else:
                    self.assertIn(outcome.status,
                                  (CANNOT_CREATE, IO_ERROR) if call in ("open", "close") else (IO_ERROR,),
                                  outcome)
                    self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                if call != "rename":
                    self.assertEqual(list(output.rglob(".*.partial")), [])
                outcome = run(self.options(command, output) | {"output.if-exists": "resume"}, RANKS,
                              name=command)
                self.assertEqual(outcome.status, 0, outcome)
                self.assertEqual(self.results(command, output), expected[command])
        self.assertGreaterEqual(hit, len(ROWS) // 2)
        print(f"{hit} faults of {len(ROWS)} combinations")


if __name__ == "__main__":
    main()

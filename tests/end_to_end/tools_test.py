"""The tools reelmesh-* on traced runs of the demo: the same bits on other ranks, a trace that has
the form that Perfetto reads, pictures, films and exported clips, and a job that is watched."""

import json
import os
import pathlib
import subprocess
import sys
import time

from support import Scratch, command_of, finish, main, start

SOURCE = pathlib.Path(os.environ["REELMESH_SOURCE"])
STEPS = 6
sys.path.insert(0, str(SOURCE / "tests/tools"))
import browser  # noqa: E402
import trace_checks  # noqa: E402


class Tools(Scratch):
    def options(self, name, **more):
        options = {"config": SOURCE / "inputs/demo.cfg", "model.path": SOURCE / "inputs/demo_model",
                   "prompt.file": SOURCE / "inputs/demo_prompts.txt",
                   "sample.steps": STEPS, "output.path": self.folder / name}
        return options | {key.replace("_", "."): value for key, value in more.items()}

    def tool(self, name, *words, status=0):
        """Standard output of a tool, which must have this status and report no error."""
        done = subprocess.run([sys.executable, "-B", SOURCE / "tools" / name, *map(str, words)],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (status, ""), done.stdout)
        return done.stdout

    def test_two_runs_and_their_files(self):
        split = self.make(self.options("split", parallel_mode="split", trace_level="ops"), 4)
        one = self.make(self.options("one", trace_level="layers"))
        other = self.make(self.options("other", sample_seed=7, trace_level="stages"), 2)

        self.assertIn("4 clips: the same bits", self.tool("reelmesh-compare", split, one))
        picture = self.folder / "difference.png"
        found = json.loads(self.tool("reelmesh-compare", one, other, "--json", "--picture", picture,
                                     status=1))
        self.assertEqual((found["different"], found["first"]["dataset"]), (4, "latents"))
        self.assertIn("seed differs in clip 0 and 3 more: 42 in A, 7 in B", found["notes"])
        self.assertTrue(picture.stat().st_size)

        for out, level in ((split, "exchange"), (one, "transformer_block"), (other, "handover")):
            self.check_trace(out, level)

        self.tool("reelmesh-view", split, "--gif", "--webp")
        self.assertEqual(len(list((split / "view").iterdir())), 4 * 4 + 1)
        self.tool("reelmesh-export", split, "--all", "--to", self.folder / "exported", "--format",
                  "mp4,png,safetensors,npy")
        self.assertEqual(len(list((self.folder / "exported").rglob("*.*"))), 4 * (9 + 4))

        self.check_report(split)

    def check_report(self, out):
        """Times of each rank add up to the wall time; the page is made, and without errors."""
        found = json.loads(self.tool("reelmesh-report", out, "--json"))
        self.assertEqual((found["job"]["status"], found["clips"]["complete"]), ("complete", 4))
        self.assertEqual((found["trace"]["level"], len(found["trace"]["ranks"])), ("ops", 4))
        for rank in found["trace"]["ranks"]:
            self.assertAlmostEqual(sum(rank["seconds"].values()), found["trace"]["seconds"],
                                   places=6)
        self.assertEqual(sum(one["count"] for one in found["trace"]["steps"]), 4 * STEPS)
        self.tool("reelmesh-report", out)
        if browser.PROGRAM:
            with browser.browser() as tab:
                tab.open(out / "report.html", browser.DRAWN)
                self.assertEqual(tab.errors, [])

    def check_trace(self, out, name):
        self.tool("reelmesh-trace", out)
        document = json.loads((out / "trace.json").read_text())
        trace_checks.check(self, document)
        spans = {event["name"] for event in document["traceEvents"] if event["ph"] == "X"}
        self.assertLessEqual({"load", "encode", "denoise_step", "decode", "write", name}, spans)

    def test_a_job_is_watched(self):
        options = self.options("out", trace_level="off")
        job = start(command_of(options, 4), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        began = time.monotonic()
        while not (self.folder / "out/job.h5").exists() and job.poll() is None:
            time.sleep(0.02)
        said = self.tool("reelmesh-view", self.folder / "out", "--watch", "--no-mp4")
        self.assertEqual(finish(job, began, 60).status, 0)
        self.assertEqual(sum(line.startswith("reelmesh-view: clip ")
                             for line in said.splitlines()), 4)
        self.assertIn("the job is complete; 4 clips in", said)


if __name__ == "__main__":
    main()

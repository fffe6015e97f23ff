"""The tools reelmesh-* on traced runs of the demo: the same bits on other ranks, a trace that has
the form that Perfetto reads, pictures, films and exported clips, and a job that is watched."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from support import Scratch, command_of, finish, main, start

SOURCE = pathlib.Path(os.environ["REELMESH_SOURCE"])
STEPS = 6
sys.path[:0] = [str(SOURCE / "tests/tools"), str(SOURCE / "tools")]
import browser  # noqa: E402
import trace_checks  # noqa: E402

import reelmesh_results  # noqa: E402


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

    def test_prompts_of_vbench(self):
        """Repeated prompts of a list as VBench has it: a repeated clip is that of a line with its
        seed, and has the name that VBench looks for."""
        listed, line = self.folder / "info.json", self.folder / "one.jsonl"
        prompts = ["a red circle falls over a white field", "a blue square grows"]
        listed.write_text(json.dumps([
            {"prompt_en": prompts[0], "dimension": ["color"],
             "auxiliary_info": {"color": {"color": "red"}}},
            {"prompt_en": prompts[1], "dimension": ["scene"], "seed": 7, "repeat": 2}]))
        out = self.make(self.options("out", prompt_file=listed, prompt_repeat=3), 2)
        job = reelmesh_results.open(out)
        self.assertEqual([(clip.prompt, clip.seed) for clip in job.clips.values()],
                         [(prompts[0], 42), (prompts[0], 43), (prompts[0], 44),
                          (prompts[1], 7), (prompts[1], 8)])
        line.write_text(json.dumps({"prompt": prompts[0], "seed": 44}))
        one = self.make(self.options("one", prompt_file=line))
        self.assertTrue(reelmesh_results.compare(
            job.clips[2], reelmesh_results.open(one).clips[0]).same)
        if shutil.which("ffmpeg"):
            self.tool("reelmesh-export", out, "--vbench", self.folder / "videos", "--dimensions",
                      listed)
            self.assertEqual({str(path.relative_to(self.folder / "videos"))
                              for path in (self.folder / "videos").rglob("*.mp4")},
                             {*(f"color/{prompts[0]}-{i}.mp4" for i in range(3)),
                              *(f"scene/{prompts[1]}-{i}.mp4" for i in range(2))})

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

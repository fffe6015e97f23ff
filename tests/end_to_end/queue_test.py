"""Many clips on several ranks: replicas take batches as they become free, and their number suits
the clips that are to be made. No bit depends on who makes which clip."""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import time

import h5py

from support import (ERROR, WARNING, Reference, Scratch, clip_file, command_of, finish, job_status,
                     main, names_of_states, only_long, programs_of, read_clip, run, send, start)
from tables import table

SIZES = ({"frames": 16, "steps": 24}, {"frames": 8, "steps": 8}, {"frames": 9, "steps": 16})


class QueueCase(Scratch):
    """Jobs of many clips of the tiny model, and who made which."""

    def setUp(self):
        super().setUp()
        self.output = self.folder / "output"

    def options(self, clips, sizes=SIZES, **more):
        path = self.folder / "prompts.jsonl"
        path.write_text("".join(json.dumps({"prompt": f"clip {i}", **sizes[i % len(sizes)]}) + "\n"
                                for i in range(clips)))
        return Reference("rotary").options(self.output, **{"prompt__file": path} | more)

    def check_bits(self, expected):
        for index, clip in enumerate(expected):
            made = read_clip(self.output, index)
            for name in ("latents", "video"):
                self.assertEqual(made[name].tobytes(), clip[name].tobytes(),
                                 f"{name} of clip {index}")

    def expected(self, clips, **more):
        folder = self.folder / "expected"
        self.make(self.options(clips, output__path=folder, **more))
        return [read_clip(folder, i) for i in range(clips)]

    def spans(self, name, rank=None):
        """Sorted by rank and start."""
        with h5py.File(self.output / "trace.h5") as file:
            spans = table(file, "spans")
        spans = spans[spans["name"] == name]
        return spans if rank is None else spans[spans["rank"] == rank]

    def clips_by_rank(self):
        """Rank -> clips whose steps it has computed, in the order of time."""
        made = {}
        for span in self.spans(b"denoise_step"):
            clips = made.setdefault(int(span["rank"]), [])
            if int(span["clip"]) not in clips:
                clips.append(int(span["clip"]))
        return made


class QueueTest(QueueCase):
    def test_a_slow_replica_makes_fewer_clips(self):
        clips = 12
        expected = self.expected(clips)
        began = time.monotonic()
        job = start(command_of(self.options(clips, parallel__replicas=3), 3),
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not list(self.output.glob("clips/0*.h5")):
            self.assertIsNone(job.poll())
            time.sleep(0.01)
        slow = programs_of(job.pid, 3)[1]
        os.kill(slow, signal.SIGSTOP)
        others = lambda: len(list(self.output.glob("clips/0*.h5")))
        while others() < clips - 1 and job.poll() is None:
            self.assertLess(time.monotonic() - began, 60, "the others wait for the slow replica")
            time.sleep(0.02)
        os.kill(slow, signal.SIGCONT)
        outcome = finish(job, began, 60)
        self.assertEqual(outcome.status, 0, outcome)
        self.check_bits(expected)
        made = self.clips_by_rank()
        self.assertEqual(sorted(sum(made.values(), [])), list(range(clips)))
        self.assertLess(len(made[1]), min(len(made[0]), len(made[2])), made)
        for order in made.values():  # the longest first
            sizes = [SIZES[clip % len(SIZES)]["steps"] for clip in order]
            self.assertEqual(sizes, sorted(sizes, reverse=True), made)

    def test_a_running_job_tells_what_it_does(self):
        clips = 15
        began = time.monotonic()
        few_files = lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        job = start(command_of(self.options(clips, parallel__replicas=3, restart__every=4), 3),
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=few_files)

        def status():
            path = self.output / "status.json"
            return json.loads(path.read_text()) if path.exists() else None

        def at_work():
            found = status()
            return found and found["complete"] > 0 and any(
                "clip" in rank for rank in found["ranks"])
        while not list(self.output.glob("clips/0*.h5")):
            self.assertIsNone(job.poll())
            time.sleep(0.01)
        limit = pathlib.Path(f"/proc/{programs_of(job.pid, 3)[2]}/limits").read_text()
        soft, hard = re.search(r"Max open files +(\d+) +(\d+)", limit).groups()
        self.assertEqual(int(soft), min(int(hard), 2 ** 20), "not raised on the last rank")
        # status.json is written every 2 s; a fast machine would be done by then.
        slow = programs_of(job.pid, 3)[1:]
        while not at_work():
            send(signal.SIGSTOP, slow)
            time.sleep(0.5)
            self.assertIsNone(job.poll(), "ended before status.json said what it does")
            send(signal.SIGCONT, slow)
            time.sleep(0.005)
        self.assertEqual(job_status(self.output), "unfinished")
        send(signal.SIGKILL, programs_of(job.pid, 3))
        finish(job, began, 60)
        found = status()  # what a job that was killed did last
        self.assertTrue(any("clip" in rank for rank in found["ranks"]), found)
        self.assertEqual(found["clips"], clips)
        self.assertEqual([rank["rank"] for rank in found["ranks"]], [0, 1, 2])
        for rank in found["ranks"]:
            self.assertLess(rank["heard_seconds_ago"], 5)
            self.assertGreater(rank["process"], 0)
            if rank["stage"] == "denoise_step":
                self.assertEqual(rank["steps"], SIZES[rank["clip"] % len(SIZES)]["steps"])
                self.assertLess(rank["step"], rank["steps"])
        for clip in found["at_work"]:
            self.assertIn(clip["state"],
                          ("encoding", "denoising", "decoding", "writing", "handed over"))
            self.assertEqual(clip["ranks"], [rank["rank"] for rank in found["ranks"]
                                             if rank.get("clip") == clip["clip"]])
        self.assertEqual({clip["clip"] for clip in found["at_work"]},
                         {rank["clip"] for rank in found["ranks"] if "clip" in rank})
        with h5py.File(self.output / "job.h5") as file:
            self.assertEqual(names_of_states(table(file, "states")), clips * ["missing"])
            done = [name for name in file["clips"] if name in file["clips"]]
            self.assertGreaterEqual(len(done), found["complete"])
            self.assertEqual(file["clips"][min(done)].attrs["prompt"],
                             f"clip {int(min(done))}")

        outcome = run(self.options(clips, output__if_exists="resume"), 2)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIsNone(status())
        self.assertEqual(job_status(self.output), "complete")

    @only_long
    def test_a_job_of_very_many_clips(self):
        """Its last clips are in a folder, and its ranks share the list. All but one are there, as
        links to a clip of the same prompt and seed."""
        prompts = self.folder / "same.jsonl"
        options = Reference("rotary").options(self.output, prompt__file=prompts)
        line = json.dumps({"prompt": "a lamp", "seed": 7, "frames": 9, "steps": 1}) + "\n"
        prompts.write_text(line)
        self.make(options)
        clips = 10_003
        clip_file(self.output, clips - 1).parent.mkdir()
        missing, earlier = clips - 3, clips - 2
        for number in range(1, clips):
            if number not in (missing, earlier):
                os.link(clip_file(self.output), clip_file(self.output, number))
        os.link(clip_file(self.output), self.output / "clips" / f"{earlier:06}.h5")  # flat
        prompts.write_text(clips * line)
        outcome = run(options | {"output.if-exists": "resume"}, 2, timeout=600)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn(f"{clips - 1} of {clips} clips are complete already", outcome.errors)
        self.assertFalse((self.output / "earlier").exists())
        self.assertEqual(clip_file(self.output, earlier), self.output / "clips/010/010001.h5")
        self.assertEqual(clip_file(self.output, earlier).stat().st_ino,
                         clip_file(self.output).stat().st_ino)
        self.assertEqual(clip_file(self.output, missing).stat().st_nlink, 1)
        for name in ("latents", "video"):
            self.assertEqual(read_clip(self.output, missing)[name].tobytes(),
                             read_clip(self.output)[name].tobytes())
        with h5py.File(self.output / "job.h5") as file:
            self.assertEqual(len(file["clips"]), clips)
            self.assertEqual(file["clips/010001"].attrs["prompt"], "a lamp")

    def test_replicas_join_for_the_last_clips(self):
        """Of six equal clips four are made side by side on 4 ranks, then two on two ranks each."""
        expected = self.expected(6, sizes=SIZES[:1])
        outcome = run(self.options(6, sizes=SIZES[:1]), 4)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn("batches: 4 on 4 replicas, the longest first; then 2 on 2 replicas of 2 ranks",
                      outcome.errors)
        self.check_bits(expected)
        made = self.clips_by_rank()
        self.assertEqual(sorted(clips[0] for clips in made.values()), [0, 1, 2, 3], made)
        self.assertEqual({made[0][1], made[2][1]}, {4, 5}, made)
        self.assertEqual((made[1][1:], made[3][1:]), (made[0][1:], made[2][1:]), made)
        with h5py.File(self.output / "job.h5") as file:
            self.assertIn("the last 2 batches", file.attrs["plan"])

    def test_the_number_of_replicas_suits_the_clips(self):
        expected = self.expected(8)
        outcome = run(self.options(8), 4)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn("0-3 (4 groups)", outcome.errors)
        self.check_bits(expected)

        clip_file(self.output, 5).unlink()
        outcome = run(self.options(8, output__if_exists="resume"), 4)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.lines(ERROR) + outcome.lines(WARNING), [], outcome)
        self.assertNotIn("groups)", outcome.errors, "one clip, so all ranks make it together")
        self.assertEqual({rank: clips for rank, clips in self.clips_by_rank().items()},
                         {rank: [5] for rank in range(4)})
        self.check_bits(expected)


if __name__ == "__main__":
    main()

"""`parallel.tune = yes`: layouts that are timed on the first steps of the job's own clips."""

import json
import os
import shutil
import signal

import h5py

from interrupted import Interrupted
from support import (BACKEND, DATA, ERROR, LONG, WARNING, Reference, job_status, main,
                     names_of_states, only_long, read_clip, run)
from tables import table

STOPPED = 75
MACHINE = DATA.parents[2] / "inputs/machines/l40.cfg" if BACKEND else DATA.parent / "machine.cfg"
TUNE = {"parallel.tune": "yes"}
TRIAL = 4  # steps of a clip for each layout
STEPS = 3 * TRIAL + 4
# Emulated GPUs are slow.
SMALL = {"sample__height": 32, "sample__width": 32, "sample__frames": 8} if BACKEND else {}


class TuneTest(Interrupted):
    """A job of three clips."""

    expected = {}  # settings -> clips of a job on one rank

    def options(self, output, **more):
        return Reference("rotary").options(output, **{
            "prompt__text": ["one", "two", "three"], "sample__steps": STEPS,
            "device__backend": BACKEND or "cpu", "device__machine": MACHINE} | SMALL | more)

    def tuned(self, ranks, **more):
        """Runs the job with parallel.tune; it must succeed. Returns its lines about the layouts."""
        outcome = run(self.options(self.output, **more) | TUNE, ranks)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(outcome.lines(ERROR) + outcome.lines(WARNING), [], outcome)
        return outcome.lines("tuning: ")

    def check_bits(self, **settings):
        """The clips of the output are those of an undisturbed job on one rank."""
        key = tuple(sorted(settings.items()))
        if key not in TuneTest.expected:
            alone = self.make(self.options(self.folder / "alone", output__if_exists="replace",
                                           **settings))
            TuneTest.expected[key] = [read_clip(alone, i) for i in range(3)]
        for index, expected in enumerate(TuneTest.expected[key]):
            clip = read_clip(self.output, index)
            for name in ("latents", "video"):
                self.assertEqual(clip[name].tobytes(), expected[name].tobytes(),
                                 f"{name} of clip {index}")
        self.assertFalse((self.output / "restart").exists())
        self.assertEqual(job_status(self.output), "complete")

    def attributes(self):
        with h5py.File(self.output / "job.h5") as file:
            return dict(file.attrs)

    def check_kept(self, layouts, lines):
        """job.h5 has the layouts, and its plan and that of a clip are those of the fastest."""
        attributes = self.attributes()
        tuned = json.loads(attributes["tuned"])
        self.assertEqual(len(tuned["layouts"]), layouts)
        self.assertEqual(len(lines), layouts + 1)
        for layout in tuned["layouts"]:
            self.assertGreater(layout["measured_step_seconds"], 0)
            self.assertGreater(layout["predicted_step_seconds"], 0)
            self.assertEqual(
                sum(f"tuning: {layout['layout']}, {layout['weights']} weights: " in line
                    for line in lines), 1, lines)
        self.assertEqual(len({layout["layout"] for layout in tuned["layouts"]}), layouts)
        kept = tuned["layouts"][tuned["kept"]]
        self.assertEqual(kept["rest_seconds"],
                         min(layout["rest_seconds"] for layout in tuned["layouts"]))
        self.assertIn(f"tuning: kept {kept['layout']}, {kept['weights']} weights", lines[-1])
        words = kept["options"].split()
        asked = {key.removeprefix("--"): value for key, value in zip(words[::2], words[1::2])}
        plan = json.loads(attributes["plan_json"])
        options = self.options(self.output) | asked
        planned = self.planned(options, "--ranks", plan["ranks"])
        for each in (plan, planned):
            each["layout"]["mesh"].pop("why")
        for part in ("layout", "weights", "denoise", "decode"):
            self.assertEqual(plan[part], planned[part], part)
        self.assertEqual(attributes["plan"], plan["description"])

    def test_three_layouts_are_timed_and_the_fastest_is_kept(self):
        lines = self.tuned(4)
        self.check_kept(3, lines)
        self.check_bits()
        with h5py.File(self.output / "trace.h5") as trace:
            spans = table(trace, "spans")
        spans = spans[spans["name"] == b"denoise_step"]
        steps = [tuple(step) for step in spans[["rank", "clip", "step"]].tolist()]
        self.assertEqual(len(steps), len(set(steps)), "a step was made twice")
        self.assertEqual({step[1:] for step in steps},
                         {(clip, step) for clip in range(3) for step in range(STEPS)})

    @only_long
    def test_fewer_steps_time_fewer_layouts(self):
        for steps, layouts in ((2 * TRIAL, 0), (2 * TRIAL + 1, 2), (3 * TRIAL, 2)):
            with self.subTest(steps=steps):
                settings = {"sample__steps": steps}
                lines = self.tuned(4, output__if_exists="replace", **settings)
                if layouts:
                    self.check_kept(layouts, lines)
                else:
                    self.assertEqual(lines, [f"tuning: no layout is timed: {steps} of the steps of "
                                             f"a clip are left, expected at least {steps + 1}"])
                    self.assertNotIn("tuned", self.attributes())
                self.check_bits(**settings)

    def test_one_layout_is_not_timed(self):
        one = {"parallel__mode": "phased", "parallel__replicas": 2, "parallel__cfg": 1,
               "parallel__ring": 1, "parallel__ulysses": 2}
        for ranks, layout in ((4, one), (1, {})):
            with self.subTest(ranks=ranks):
                lines = self.tuned(ranks, output__if_exists="replace", **layout)
                self.assertEqual(len(lines), 1)
                self.assertIn("tuning: nothing to compare: ", lines[0])
                self.assertNotIn("tuned", self.attributes())
                self.check_bits()

    def test_other_jobs(self):
        """Split mode; batches of unequal numbers of clips; steps that are not computed."""
        table = ((4, {"parallel__mode": "split"}), (2, {"sample__batch": 2}),
                 (3, {"sample__cache": "every:2,from:1,to:99"}),
                 (2, {"sample__cache": "every:9,from:1,to:99"}))
        for ranks, more in table if LONG else table[:3:2]:
            with self.subTest(**more):
                settings = {key: value for key, value in more.items() if "cache" in key}
                lines = self.tuned(ranks, output__if_exists="replace", **more)
                self.assertIn("tuning: kept ", lines[-1])
                self.check_bits(**settings)

    def test_a_stop_between_two_layouts(self):
        size = {"sample__height": 96, "sample__width": 96}
        for ranks, tune in ((2, {}), (4, TUNE)) if LONG else ((2, {}),):
            with self.subTest(ranks=ranks):
                shutil.rmtree(self.output, ignore_errors=True)
                self.check_stopped(self.disturb(
                    4, lambda job, ranks: os.kill(ranks[-1], signal.SIGTERM),
                    self.options(self.output, restart__every="none", **size) | TUNE,
                    self.is_between_layouts))
                again = self.options(self.output, output__if_exists="resume", **size)
                outcome = run(again | tune, ranks)
                self.assertEqual(outcome.status, 0, outcome)
                self.assertIn(f" of {STEPS}", outcome.lines("clip ")[0])
                self.check_bits(**size)

    def check_stopped(self, outcome):
        self.assertEqual(outcome.status, STOPPED, outcome)
        self.assertEqual(len(outcome.lines("stopped on request (SIGTERM)")), 1, outcome)
        self.assertFalse(any("kept" in line for line in outcome.lines("tuning: ")), outcome)
        saved = self.saved()
        self.assertGreater(len(saved), 0)
        self.assertLessEqual(max(saved.values()), 3 * TRIAL)
        with h5py.File(self.output / "job.h5") as job:
            self.assertEqual(job.attrs["status"], "stopped")
            self.assertNotIn("tuned", job.attrs)
            states = names_of_states(table(job, "states"))
        self.assertEqual(states, ["saved" if i in saved else "missing" for i in range(3)])

    def is_between_layouts(self):
        """After the steps of the first layout, before the last ones of the third."""
        return TRIAL <= max(self.saved_quietly().values(), default=0) < 3 * TRIAL


if __name__ == "__main__":
    main()

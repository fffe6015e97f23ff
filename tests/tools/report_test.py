#!/usr/bin/python3
"""Tests of the numbers of tools/reelmesh-report, against some computed by hand, and of its errors.

Ends with status 77 (skipped) if Debian's packages for it are not installed; the test of the schema
is skipped without jsonschema.
"""
import json
import shutil
import sys
import time
import unittest

try:
    import h5py
    import matplotlib  # noqa: F401
    import numpy as np
    import PIL  # noqa: F401
except ImportError as missing:
    print(f"report_test: passed over: {missing}")
    sys.exit(77)

import damages
import results_support as support
from report_support import SPANS, Report
from tables import table, write_table
from tool_support import TOOLS

from reelmesh_results.span_names import LANES


class Numbers(Report):
    def named(self, found, name):
        return next(one for one in found["trace"]["names"] if one["name"] == name)

    def test_time_within_a_nested_span_counts_once(self):
        self.job()
        found = self.numbers()["trace"]
        self.assertEqual(found["seconds"], 200e-9)
        for rank, expected in enumerate([(90, 10, 30, 50, 20), (190, 10, 0, 0, 0)]):
            seconds = found["ranks"][rank]["seconds"]
            for name, value in zip((*LANES, "other"), expected):
                self.assertAlmostEqual(seconds[name], value * 1e-9, delta=1e-15)

    def test_sums_by_name(self):
        self.job()
        found = self.numbers()
        step, block = self.named(found, "denoise_step"), self.named(found, "transformer_block")
        self.assertEqual(step["calls"], 2)
        for value, expected in ((step["seconds"], 190), (step["self_seconds"], 140),
                                (step["call_seconds"]["min"], 90),
                                (step["call_seconds"]["max"], 100),
                                (step["rank_seconds"]["mean"], 95),
                                (block["self_seconds"], 20), (block["rank_seconds"]["min"], 0)):
            self.assertAlmostEqual(value, expected * 1e-9, delta=1e-15)
        self.assertAlmostEqual(step["share"], 140 / 400)
        self.assertEqual((step["innermost"], step["bytes"], step["flops"]), (False, 320, 1000))

    def test_shares_of_the_peaks(self):
        self.job()
        product = self.named(self.numbers(), "product")
        self.assertTrue(product["innermost"])
        self.assertAlmostEqual(product["flops_per_s"], 5e10)
        self.assertAlmostEqual(product["flops_share_of_peak"], 0.5)
        self.assertAlmostEqual(product["memory_bytes_per_s"], 2.5e10)
        self.assertAlmostEqual(product["memory_bytes_share_of_peak"], 0.5)
        product = self.named(self.numbers("--peak-flops", "2e11", "--bandwidth", "1e11"),
                             "product")
        self.assertAlmostEqual(product["flops_share_of_peak"], 0.25)
        self.assertAlmostEqual(product["memory_bytes_share_of_peak"], 0.25)
        self.assertIsNone(self.named(self.numbers(), "write")["flops_share_of_peak"])

    def test_bytes_against_the_plan(self):
        plan = {"clip": {"frames": 5, "height": 16, "width": 16},
                "by_rank": [{"rank": 0, "step_sent_bytes": 80}, {"rank": 1,
                                                                 "step_sent_bytes": 120}]}
        self.job(plan_json=json.dumps(plan))
        found = self.numbers()["trace"]
        self.assertEqual([rank["bytes_sent"] for rank in found["ranks"]], [80, 280])
        self.assertEqual([(one["mean"], one["planned"], one["ratio"])
                          for one in found["step_bytes"]], [(80, 80, 1), (240, 120, 2)])

    def test_sent_as_planned_is_only_said_if_it_is_so(self):
        def said(*planned):
            self.job(plan_json=json.dumps({
                "clip": {"frames": 5, "height": 16, "width": 16},
                "by_rank": [{"rank": rank, "step_sent_bytes": one}
                            for rank, one in enumerate(planned)]}))
            page = self.page()
            self.assertNotEqual("sent in a step what the plan says" in page,
                                "sent other amounts than the plan says" in page)
            return "sent in a step what the plan says" in page
        self.assertTrue(said(80, 240))
        self.assertFalse(said(80, 120))
        self.assertFalse(said(0, 0))
        self.assertFalse(said(80, 0))

    def test_a_step_of_a_batch_is_divided_by_its_clips(self):
        rows = [(0, "compute", "denoise_step", clip, 0, -1, 100 * clip, 50, sent, 0, 0)
                for clip, sent in ((0, 160), (2, 80))]
        plan = {"clip": {"frames": 5, "height": 16, "width": 16},
                "by_rank": [{"rank": 0, "step_sent_bytes": 80}]}
        self.job(3, rows, plan_json=json.dumps(plan), options="sample.batch = 2\n")
        [found] = self.numbers()["trace"]["step_bytes"]
        self.assertEqual((found["min"], found["max"], found["ratio"]), (80, 80, 1))

    def test_a_step_takes_as_long_as_its_slowest_rank(self):
        self.job()
        [step] = self.numbers()["trace"]["steps"]
        self.assertEqual((step["size"], step["count"]), ("5×16×16", 1))
        self.assertAlmostEqual(step["median"], 100e-9)
        self.assertEqual(step["replica"], "2 ranks from 0")

    def test_spans_that_overlap(self):
        """A later span counts where two are open, also where none contains the other."""
        rows = [(0, "compute", "a", -1, -1, -1, 0, 10, 0, 0, 0),
                (0, "exchange", "b", -1, -1, -1, 5, 10, 0, 0, 0),
                (0, "file", "c", -1, -1, -1, 12, 1, 0, 0, 0)]
        self.job(rows=rows)
        seconds = self.numbers()["trace"]["ranks"][0]["seconds"]
        self.assertEqual([round(seconds[name] * 1e9) for name in ("compute", "exchange", "file")],
                         [5, 9, 1])

    def test_an_unfinished_trace_has_spans_in_any_order(self):
        self.job()
        whole = self.numbers()
        self.job(rows=[SPANS[i] for i in (2, 3, 1, 4, 0, 5, 6, 8, 7)], complete=False,
                 status="unfinished")
        found = self.numbers()
        self.assertFalse(found["trace"]["complete"])
        self.assertEqual(found["trace"]["ranks"], whole["trace"]["ranks"])
        self.assertEqual(sorted(found["trace"]["names"], key=lambda one: one["name"]),
                         sorted(whole["trace"]["names"], key=lambda one: one["name"]))

    def test_random_spans_against_a_count_of_moments(self):
        random = np.random.default_rng(5)
        for _ in range(20):
            rows = sorted(((0, "compute", "abcdef"[i], -1, -1, -1, int(random.integers(50)),
                            int(random.integers(1, 30)), 0, 0, 0) for i in range(6)),
                          key=lambda row: (row[6], -row[7]))
            expected = dict.fromkeys("abcdef", 0)
            for moment in range(80):
                open_ones = [row[2] for row in rows if row[6] <= moment < row[6] + row[7]]
                if open_ones:
                    expected[open_ones[-1]] += 1
            from reelmesh_results.report import nesting
            start, end = (np.array([row[6] + row[7] * last for row in rows]) for last in (0, 1))
            own = nesting.self_times(start, end, nesting.parents(start, end))
            self.assertEqual({row[2]: int(value) for row, value in zip(rows, own)}, expected)

    def test_states_of_clips(self):
        self.job(5, states={1: ("failed", "rank 0: out of memory"), 2: ("saved", ""),
                            3: ("missing", "")}, status="failed")
        clips = self.numbers()["clips"]
        self.assertEqual([clips[name] for name in ("total", "complete", "failed", "saved",
                                                   "missing")], [5, 2, 1, 1, 1])
        self.assertEqual([one["state"] for one in clips["items"]],
                         ["complete", "failed", "saved", "missing", "complete"])
        self.assertEqual(clips["items"][1]["reason"], "rank 0: out of memory")
        self.assertEqual(clips["items"][1]["prompt"], "prompt 1")

    def test_previews(self):
        self.job(3, states={1: ("preview", ""), 2: ("missing", "")})
        with h5py.File(self.out / "clips/000001.h5", "r+") as file:
            file.attrs["stopped_after"] = 5
        clips = self.numbers()["clips"]
        self.assertEqual([one["state"] for one in clips["items"]],
                         ["complete", "preview", "missing"])
        self.assertEqual((clips["preview"], clips["items"][1]["stopped_after"]), (1, 5))
        page = self.page()
        self.assertIn("preview after 5 of 20 steps", page)
        self.assertIn("1 preview, 1 missing", page)
        self.assertEqual(page.count('<article class="card">'), 2)

    def test_clips_in_folders(self):
        self.job(10_001, states={i: ("missing", "") for i in range(9_999)})
        clips = self.numbers()["clips"]
        self.assertEqual([(one["state"], one["file"]) for one in clips["items"][9_998:]],
                         [("missing", "clips/009998.h5"), ("complete", "clips/009999.h5"),
                          ("complete", "clips/010/010000.h5")])

    def test_files_of_other_jobs_are_not_shown(self):
        self.job(4)
        for status, state in (("failed", "failed"), ("stopped", "saved"), ("stopped", "missing")):
            support.write_index(self.out, [{"prompt": "mine"}] * 2, {1: (state, "")},
                                status=status)
            items = self.numbers()["clips"]["items"]
            self.assertEqual([one["state"] for one in items], ["complete", state])
            self.assertEqual(items[1]["prompt"], "mine")

    def test_a_job_that_runs(self):
        self.job(2, states={1: ("missing", "")}, status="unfinished", end="")
        status = {"updated": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "clips": 2,
                  "complete": 1, "at_work": [],
                  "ranks": [{"rank": 0, "host": "node-a", "stage": "denoise_step", "clip": 1,
                             "step": 3, "steps": 20}]}
        (self.out / "status.json").write_text(json.dumps(status))
        found = self.numbers()["job"]
        self.assertEqual(found["status"], "running")
        self.assertEqual(found["now"]["ranks"][0]["step"], 3)
        status["updated"] = "2026-01-31T12:00:00Z"  # long ago
        (self.out / "status.json").write_text(json.dumps(status))
        self.assertEqual(self.numbers()["job"]["status"], "unfinished")
        page = self.page()
        self.assertIn("The job has not ended by itself", page)
        self.assertIn("What the ranks did", page)

    def test_new_plans_while_the_job_ran(self):
        self.job()
        self.assertEqual(self.numbers()["job"]["planned_again"], [])
        line = "rank 1 needs 3 GiB while it denoises, found room for 2 GiB; planned again: <sharded>"
        self.job(planned_again=[line])
        self.assertEqual(self.numbers()["job"]["planned_again"], [line])
        self.assertIn(f"  Memory was short: {line}.\n", self.expect(0, self.out, "--text"))
        self.assertIn(f"Memory was short: {line[:-9]}&lt;sharded&gt;.", self.page())

    def test_a_predicted_time_beside_the_measured_one(self):
        for predicted, measured, error, words in (
                (95.0, 100.0, -5, "predicted 95 s, measured 100 s, error −5.0 %"),
                (150.0, 120.0, 25, "predicted 2 min 30 s, measured 2 min 00 s, error +25 %"),
                (50.0, 50.0, 0, "predicted 50 s, measured 50 s, error 0.0 %")):
            self.job(predicted_seconds=predicted, measured_seconds=measured)
            with self.subTest(words):
                found = self.numbers()["job"]["prediction"]
                self.assertEqual(found["predicted_seconds"], predicted)
                self.assertEqual(found["measured_seconds"], measured)
                self.assertAlmostEqual(found["error_percent"], error)
                self.assertIn("  plan    " + words + "\n", self.expect(0, self.out, "--text"))
                told, error = words.removeprefix("predicted ").split(", measured ")
                self.assertIn(f"<dd>{told}</dd><dt>predicted; measured {error}</dt>", self.page())

    def test_one_wall_time(self):
        for attributes, seconds in (({"measured_seconds": 7.5}, 7.5), ({}, 600),
                                    ({"measured_seconds": 0.0}, 600),
                                    ({"measured_seconds": "long"}, 600),
                                    ({"end": "2026-01-31T12:00:01Z"}, 2e-7)):
            self.job(**attributes)
            with self.subTest(attributes):
                self.assertEqual(self.numbers()["job"]["wall_seconds"], seconds)

    def test_a_simulated_job(self):
        self.job(3, states={i: ("missing", "") for i in range(3)}, status="simulated",
                 measured_seconds=1234.0)
        with h5py.File(self.out / "trace.h5", "r+") as file:
            ranks = table(file, "ranks")
            ranks["peak_memory_bytes"] = 0
            write_table(file, "ranks", ranks)
        page = self.page()
        for part in ("<dd>3</dd><dt>clips that would be made</dt>",
                     "<dd>20 min 34 s</dd><dt>predicted time of the job</dt>",
                     "rank 0: 9.28 KiB, as the plan predicts"):
            self.assertIn(part, page)
        for part in ("not made yet", "clips complete", "program and libraries", "peak 0 B"):
            self.assertNotIn(part, page)
        text = self.expect(0, self.out, "--text")
        self.assertIn("  clips   3 would be made\n", text)
        self.assertNotIn("missing", text)

    def test_no_predicted_time(self):
        for attributes in ({}, {"predicted_seconds": 9.0}, {"measured_seconds": 9.0},
                           {"predicted_seconds": 9.0, "measured_seconds": 0.0},
                           {"predicted_seconds": np.nan, "measured_seconds": 9.0},
                           {"predicted_seconds": "soon", "measured_seconds": 9.0}):
            self.job(**attributes)
            with self.subTest(attributes):
                self.assertIsNone(self.numbers()["job"]["prediction"])
                self.assertNotIn("predicted", self.expect(0, self.out, "--text"))
                self.assertNotIn("predicted;", self.page())

    def test_the_schema_describes_every_number(self):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("jsonschema is not installed")
        schema = json.loads((TOOLS / "reelmesh_results/report/schema.json").read_text())
        support.write_job(self.out, 3, 2, 500, states={1: ("failed", "why")})
        jsonschema.validate(self.numbers(), schema)
        (self.out / "trace.h5").unlink()
        jsonschema.validate(self.numbers(), schema)
        self.job(predicted_seconds=9.0, measured_seconds=10.0)
        jsonschema.validate(self.numbers(), schema)
        self.job(0, [], status="complete")
        jsonschema.validate(self.numbers(), schema)
        self.old()
        jsonschema.validate(self.numbers(), schema)

    # -- earlier files ----------------------------------------------------------------------------

    def old(self):
        """A job as the program wrote it before files had versions."""
        shutil.rmtree(self.out, ignore_errors=True)
        support.write_clip(self.out, 0, support.moving_square(5, 16, 16, 0))
        with h5py.File(self.out / "clips/000000.h5", "a") as file:
            del file.attrs["format_version"], file["time"]
            file.attrs["prompt"] = np.bytes_(b"a square")
        with h5py.File(self.out / "job.h5", "w") as file:
            for name, value in {"program": "reelmesh", "version": "0.1.0", "status": "complete",
                                "options": "model.path = m\ntrace.level = stages\n",
                                "plan": "1 rank", "git_revision": "0123456789ab-dirty",
                                "start": "2026-01-31T12:00:00Z",
                                "end": "2026-01-31T12:10:00Z"}.items():
                file.attrs[name] = np.bytes_(value.encode())
            file.attrs["hosts"] = np.array([b"node-a"])
            file["clips/000000"] = h5py.ExternalLink("clips/000000.h5", "/")
            file["states"] = np.array([(0, b"complete", b"")], [("clip", "i4"), ("state", "S12"),
                                                                ("reason", "S112")])
        old_span = np.dtype([(name, support.SPAN[name]) for name in support.SPAN.names[:-1]])
        old_rank = np.dtype([(name, support.RANK[name]) for name in support.RANK.names[:10]])
        with h5py.File(self.out / "trace.h5", "w") as file:
            file["spans"] = np.array([(row[0], row[1].encode(), row[2].encode(), *row[3:-1])
                                      for row in SPANS[:5]], old_span)
            file["ranks"] = np.array([(0, b"node-a", b"denoise", b"cpu", 1, 9000, 0, 0, 0, b"")],
                                     old_rank)

    def test_files_of_earlier_programs(self):
        self.old()
        found = self.numbers()
        self.assertEqual(found["trace"]["level"], "stages")
        self.assertEqual(found["clips"]["items"][0]["prompt"], "a square")
        self.assertAlmostEqual(found["trace"]["ranks"][0]["seconds"]["compute"], 90e-9)
        page = self.page()
        self.assertIn("The job was traced at trace.level = stages", page)
        self.assertIn("0123456789ab-dirty", page)


class Text(Report):
    def test_the_numbers_of_a_job_fit_a_terminal(self):
        support.write_job(self.out, 3, 3, 2000, states={1: ("failed", "rank 0: out of memory")})
        text = self.expect(0, self.out, "--text")
        self.assertFalse((self.out / "report.html").exists())
        self.assertLessEqual(max(map(len, text.splitlines())), 120)
        for part in ("2 of 3 complete, 1 failed", "rank 0: out of memory", "9×64×64", "node-a",
                     "denoise_step", "product", "of peak", "Memory, peaks", "Bytes sent", "Plan",
                     "Open MPI 4.1.4", "SLURM_JOB_ID=17", "█"):
            self.assertIn(part, text)

    def test_control_characters_do_not_reach_the_terminal(self):
        self.job()
        support.write_clip(self.out, 0, support.moving_square(5, 16, 16, 0), "a \x1b[31m red \x07")
        text = self.expect(0, self.out, "--text")
        self.assertFalse([one for one in text if ord(one) < 32 and one != "\n"])
        with h5py.File(self.out / "job.h5", "r+") as job:
            job.attrs["plan"] = "\u009b31m \u0085 \u202e"
        for form in ("--text", "--json"):
            text = self.expect(0, self.out, form)
            self.assertFalse([one for one in text if one in "\u009b\u0085\u202e"], form)

    def test_a_job_without_trace(self):
        self.job(rows=None, options="trace.level = off\n")
        self.assertIn("There is no trace", self.expect(0, self.out, "--text"))


class Errors(Report):
    MESSAGES = {damages.truncated: "not a readable HDF5 file", damages.empty: "the file is empty",
                damages.foreign: "not a readable HDF5 file",
                damages.newer: "is of format version 3, this tool reads up to 2"}

    def test_a_trace_that_is_none(self):
        messages = self.MESSAGES | {damages.foreign_hdf5: "has no /spans or /ranks"}
        for damage, message in messages.items():
            with self.subTest(damage.__name__):
                shutil.rmtree(self.out, ignore_errors=True)
                self.job()
                damage(self.out / "trace.h5")
                done = self.call(self.out, "--json")
                self.assertEqual((done.returncode, done.stderr.count("\n")), (65, 1))
                self.assertIn(f"trace.h5: {message}", done.stderr)
                found = json.loads(done.stdout)
                self.assertIsNone(found["trace"])
                self.assertEqual(found["clips"]["complete"], 1)

    def test_spans_that_cannot_be(self):
        for row, message in (((0, "compute", "a", 0, 0, 0, 5, -1, 0, 0, 0), "negative"),
                             ((7, "compute", "a", 0, 0, 0, 5, 1, 0, 0, 0), "spans has rank 7")):
            self.job(rows=[row])
            with h5py.File(self.out / "trace.h5", "a") as file:
                write_table(file, "ranks", table(file, "ranks")[:1])
            self.refused(65, message, self.out, "--json")

    def test_clips_that_are_none(self):
        self.job(4)
        done_to_clips = (damages.truncated, damages.empty, damages.newer)
        for i, damage in enumerate(done_to_clips):
            damage(self.out / f"clips/{i:06}.h5")
        done = self.call(self.out)
        self.assertEqual(done.returncode, 65)
        told = done.stderr.splitlines()
        self.assertEqual(len(told), 3, told)
        for i, damage in enumerate(done_to_clips):
            self.assertIn(f"{i:06}.h5: ", told[i])
            self.assertIn(self.MESSAGES[damage], told[i])
        page = (self.out / "report.html").read_text()
        self.assertEqual(page.count('<span class="state damaged">'), 3)
        self.assertIn('<p class="prompt">prompt 3</p>', page)

    def test_what_is_not_there(self):
        self.refused(66, "nowhere: no such folder", self.folder / "nowhere")
        self.out.mkdir()
        self.refused(66, "has no job.h5", self.out)
        self.job(2)
        (self.out / "clips/000001.h5").unlink()
        self.refused(66, "000001.h5: no such file; job.h5 says", self.out, "--json")

    def test_wrong_options(self):
        self.refused(64, "--peak-flops", self.out, "--peak-flops", "fast")
        self.refused(64, "not allowed with", self.out, "--text", "--json")
        self.refused(64, "required: OUT", "--text")

    def test_a_page_that_cannot_be_written(self):
        self.job()
        (self.folder / "file").write_text("")
        self.refused(73, "cannot make the folder", self.out, "--to",
                     self.folder / "file/below.html")


if __name__ == "__main__":
    unittest.main(verbosity=2)

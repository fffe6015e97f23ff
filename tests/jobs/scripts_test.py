#!/usr/bin/env python3
"""The batch scripts of jobs/ with stand-ins for srun and scontrol: scripts_test.py

tests/slurm/run runs them under a real Slurm.
"""
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = sorted((SOURCE / "jobs").glob("*.sbatch"))

# $OUTPUT has changed to a task's own folder when srun is called.
SRUN = """#!/bin/bash
printf '%s\\n' "$@" >"$STAND_IN/srun.args"
touch "$STAND_IN/started"
eval "${SRUN_DOES:-}"
exit "${SRUN_STATUS:-0}"
"""
SCONTROL = """#!/bin/bash
if [ "$2 $3" = 'show job' ]; then
  echo "JobId=7 JobName=reelmesh ${JOB_STATE:-JobState=RUNNING Reason=None} Dependency=(null)" \
    "Command=${COMMAND:-(null)} WorkDir=/home/someone"
  exit
fi
echo "$*" >>"$STAND_IN/scontrol.args"
exit "${SCONTROL_STATUS:-0}"
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        self.output = self.folder / "results"
        (self.folder / "prompts").mkdir()
        for name in ("b.txt", "a b.jsonl", "notes.md"):
            (self.folder / "prompts" / name).touch()

    def start(self, script, *options, **variables):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("SLURM_")}
        environment |= {"PATH": f"{self.folder}:{environment['PATH']}",
                        "STAND_IN": str(self.folder), "MODEL": "/models/small",
                        "OUTPUT": str(self.output), "SLURM_JOB_ID": "7",
                        "SLURM_SUBMIT_DIR": str(self.folder),
                        "COMMAND": " ".join([str(SOURCE / "jobs" / script.name), *options]),
                        **variables}
        if script.name == "array.sbatch":
            environment = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1",
                           "PROMPTS": str(self.folder / "prompts")} | environment
        return subprocess.Popen(["bash", script, *options], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run_script(self, script, *options, **variables):
        """-> status, what the script printed, calls of scontrol"""
        calls = self.folder / "scontrol.args"
        calls.unlink(missing_ok=True)
        with self.start(script, *options, **variables) as process:
            said = process.communicate()[0]
        return process.returncode, said, calls.read_text() if calls.exists() else ""

    def test_the_lines_that_find_the_rest_are_the_same(self):
        self.assertGreaterEqual(len(SCRIPTS), 4)
        ends = {path.read_text().split("\n# The rest is what the scripts share")[1]
                for path in SCRIPTS}
        self.assertEqual(len(ends), 1)

    def spooled(self, script):
        """The copy that Slurm runs, in a folder of its own."""
        copy = self.folder / "spool/job00007/slurm_script"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(script.read_text())
        return copy

    def test_a_copy_in_slurms_folder_finds_the_rest(self):
        jobs = self.folder / "a folder" / "jobs"
        jobs.mkdir(parents=True)
        (jobs / "run_reelmesh.bash").write_text((SOURCE / "jobs/run_reelmesh.bash").read_text())
        variables = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1",
                     "PROMPTS": str(self.folder / "prompts")}
        for script in SCRIPTS:
            copy = self.spooled(script)
            for command in (jobs / script.name, f"{jobs / script.name} --prompt.file /a/b.txt"):
                (self.folder / "srun.args").unlink(missing_ok=True)
                done = self.run_script(copy, "--sample.steps", "3", COMMAND=str(command),
                                       **variables)
                self.assertEqual(done, (0, "", ""), script)
                arguments = (self.folder / "srun.args").read_text().splitlines()
                self.assertEqual(arguments[-2:], ["--sample.steps", "3"], script)
            # In the repository's folder without an answer of scontrol.
            done = self.run_script(copy, COMMAND="(null)", SLURM_SUBMIT_DIR=str(jobs.parent),
                                   **variables)
            self.assertEqual(done, (0, "", ""), script)

    def test_without_the_rest_a_message_names_it(self):
        alone = self.folder / "copies" / "mine.sbatch"
        alone.parent.mkdir()
        copy = self.spooled(SOURCE / "jobs/cogvideox.sbatch")
        for command, named in (
                ("(null)", f"found no jobs/run_reelmesh.bash in {self.folder}, expected"),
                (str(alone), f"{alone.parent}/run_reelmesh.bash: No such file")):
            status, said, _ = self.run_script(copy, COMMAND=command)
            self.assertNotEqual(status, 0)
            self.assertIn(named, said)
            self.assertFalse((self.folder / "srun.args").exists())

    def test_directives(self):
        for script in SCRIPTS:
            for line in ("--signal=USR1@120", "--requeue", "--open-mode=append"):
                self.assertIn(f"#SBATCH {line}\n", script.read_text(), script)

    def test_options_reach_the_program(self):
        for script in SCRIPTS:
            status, said, calls = self.run_script(script, "--prompt.text", "two words")
            self.assertEqual((status, said, calls), (0, "", ""), script)
            arguments = (self.folder / "srun.args").read_text().splitlines()
            self.assertEqual(arguments[-2:], ["--prompt.text", "two words"], script)
            for pair in (["--model.path", "/models/small"], ["--output.if-exists", "resume"]):
                self.assertEqual(arguments[arguments.index(pair[0]):][:2], pair, script)

    def test_the_subcommand(self):
        for script in SCRIPTS:
            self.run_script(script, DATA="/data/videos")
            arguments = (self.folder / "srun.args").read_text().splitlines()
            trains = script.name == "train.sbatch"
            self.assertEqual("train" in arguments, trains, script)
            self.assertEqual("run" in arguments, not trains, script)
            self.assertEqual(["--data.path", "/data/videos"] == arguments[
                arguments.index("--config") - 2:arguments.index("--config")], trains, script)

    def test_only_status_75_queues_the_job_again(self):
        for script in SCRIPTS:
            job = "7_1" if script.name == "array.sbatch" else "7"
            for expected in (0, 64, 70, 76, 137):
                status, said, calls = self.run_script(script, SRUN_STATUS=str(expected))
                self.assertEqual((status, said, calls), (expected, "", ""), script)
            status, said, calls = self.run_script(script, SRUN_STATUS="75")
            self.assertEqual((status, calls), (75, f"requeue {job}\n"), script)
            self.assertIn("is queued again", said)

    def test_a_cancelled_job_stays_so(self):
        for script in SCRIPTS:
            for state, queued in (("JobState=RUNNING Reason=None", True),
                                  ("JobState=COMPLETING Reason=TimeLimit", True),
                                  ("JobState=COMPLETING Reason=None", False),
                                  ("JobState=PENDING Reason=BeginTime", False)):
                status, said, calls = self.run_script(script, SRUN_STATUS="75", JOB_STATE=state)
                self.assertEqual((status, bool(calls)), (75, queued), said)

    def test_scontrol_may_refuse(self):
        for script in SCRIPTS:
            status, said, _ = self.run_script(script, SRUN_STATUS="75", SCONTROL_STATUS="1")
            self.assertEqual(status, 75)
            self.assertIn("submit it again", said)

    def test_number_of_restarts_is_limited(self):
        for script in SCRIPTS:
            for restarts, limit, queued in (("99", "", True), ("100", "", False),
                                            ("2", "2", False), ("1", "2", True)):
                status, said, calls = self.run_script(
                    script, SRUN_STATUS="75", SLURM_RESTART_COUNT=restarts, MAX_RESTARTS=limit)
                self.assertEqual((status, bool(calls)), (75, queued), said)

    def test_a_long_start_without_progress_is_the_last(self):
        save, encode = (f'output=${{*: -1}}; mkdir -p "$output/{name}"; date >"$output/{name}"/0.h5'
                        for name in ("restart", "cache"))
        for script in SCRIPTS:
            output = self.output / "b.txt" if script.name == "array.sbatch" else self.output
            # As if 10 minutes had passed.
            late = self.folder / script.name
            late.write_text(script.read_text().replace("set -euo", "SECONDS=600\nset -euo"))
            for does, queued in (("", False), (save, True), (save, True), (encode, True),
                                 ("", False)):
                status, said, calls = self.run_script(late, str(output), SRUN_STATUS="75",
                                                      SRUN_DOES=does)
                self.assertEqual((status, bool(calls)), (75, queued), said)

    def test_the_shell_outlives_the_ranks(self):
        for script in SCRIPTS:
            for number in (signal.SIGTERM, signal.SIGUSR1):
                (self.folder / "started").unlink(missing_ok=True)
                with self.start(script, SRUN_DOES="sleep 0.5", SRUN_STATUS="75") as process:
                    while not (self.folder / "started").exists():
                        time.sleep(0.01)
                    process.send_signal(number)
                    process.communicate()
                self.assertEqual(process.returncode, 75, script)

    def test_array_tasks(self):
        script = SOURCE / "jobs/array.sbatch"
        for task, name in (("0", "a b.jsonl"), ("1", "b.txt")):
            status, said, _ = self.run_script(script, SLURM_ARRAY_TASK_ID=task)
            self.assertEqual((status, said), (0, ""))
            arguments = (self.folder / "srun.args").read_text().splitlines()
            for pair in (["--prompt.file", str(self.folder / "prompts" / name)],
                         ["--output.path", str(self.output / name)]):
                self.assertEqual(arguments[arguments.index(pair[0]):][:2], pair)
        status, said, _ = self.run_script(script, SLURM_ARRAY_TASK_ID="2")
        self.assertEqual(status, 66)
        self.assertIn("found 2 prompt files", said)


if __name__ == "__main__":
    unittest.main()

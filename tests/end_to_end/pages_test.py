"""The commands of the pages for users, as printed: those that two cores can run are run, the others
are checked.

Blocks of these languages count: `sh`, commands; `console`, commands after "$ " with parts of their
output, in which only numbers may differ; `python` and `json`; `text` and `ini` with a file's name,
which is written. All of a page run in one folder, which has what a clone has after a build. What
takes a model of real size is planned, with a tiny model under its name; batch scripts run with
stand-ins for Slurm, whose srun plans the job. CHECKED says what is not run at all, and why.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile

import pages
from support import ENVIRONMENT, LONG, PROGRAM, Scratch, main

SOURCE = pathlib.Path(os.environ["REELMESH_SOURCE"])
BUILD = pathlib.Path(PROGRAM).parent
EMULATED = BUILD / "tests/reelmesh_emulated"  # not in all builds
CMAKE = os.environ["REELMESH_CMAKE"]

# Not run: syntax, and that the programs of the repository that they name are there, is checked.
CHECKED = (
    (r"tools/(setup|build|demo|test)\b", "installs packages or builds"),
    (r"cmake (-S|--build)", "builds"),
    (r"(dpkg-source|CC=mpicc|make|cd \.\.|cd hdf5|cd reelmesh)\b", "builds libraries"),
    (r"(cd build && cpack|apt )", "makes and installs a package: tests/install/run does"),
    (r"(/usr/bin/python3 -m venv|ENV/bin/)", "needs a package registry"),
)

# Models that pages have in the home folder → presets of make-model.
MODELS = {
    "CogVideoX-2b": "tiny-cogvideox", "CogVideoX-5b": "tiny-cogvideox-rotary",
    "Wan2.1-T2V-1.3B": "tiny-wan",
}

# Programs that a cluster or a network has. sbatch runs the script at once; srun plans the job.
STAND_INS = {
    "hf": """#!/bin/bash
[ "$1" = download ] && [[ $2 == */* ]] && [ "${@: -2:1}" = --local-dir ] && [ $# -le 5 ]
""",
    "squeue": """#!/bin/bash
[ "$*" = --me ]
""",
    "apptainer": """#!/bin/bash
case $1 in
  build) [ "$2" = reelmesh.sif ] && [ -f "$3" ] ;;
  run)
    [ "$2" = reelmesh.sif ] && shift 2
    exec "$PROGRAM" "${@/#\/usr\/share\/reelmesh/$SOURCE}" ;;
  *) exit 64 ;;
esac
""",
    "sbatch": """#!/bin/bash
set -e
while [[ $1 == --* ]]; do
  [[ $1 =~ ^--(nodes|ntasks-per-node|cpus-per-task|gpus-per-node|time|mem|array)= ]]
  shift
done
export SLURM_SUBMIT_DIR=$PWD SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=1
exec bash "$@"
""",
    "srun": """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
while [[ $1 != *reelmesh ]]; do shift; done
case $2 in
  plan) cp "$SOURCE/tests/data/machine.cfg" "$4" ;;
  run | train)
    shift 2  # in a container, the files of an installation are there
    exec "$PROGRAM" plan --ranks 4 "${@/#\/usr\/share\/reelmesh/$SOURCE}" ;;
esac
""",
}

# The demo of a training is as printed, with fewer clips and steps.
SHORTER = ((r"tools/make_training_clips .*", " --count 4"),
           (r"mpirun .* train --config inputs/demo.*", " --train.steps 2 --train.validate-every 2"))


def masked(line):
    """A line of output without numbers and spaces."""
    return re.sub(r"[\d.]+", "#", re.sub(r"[\s-]+", " ", line)).strip()


class PagesTest(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.counts = {"run": 0, "planned": 0, "checked": 0}
        cls.results = pathlib.Path(tempfile.mkdtemp(prefix="reelmesh_"))
        cls.addClassCleanup(shutil.rmtree, cls.results, ignore_errors=True)
        subprocess.run([PROGRAM, "run", "--config", "inputs/demo.cfg", "--sample.steps", "2",
                        "--output.path", cls.results / "demo"], check=True, cwd=SOURCE,
                       env={**os.environ, **ENVIRONMENT}, stderr=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        print("commands of pages:", ", ".join(f"{n} {what}" for what, n in cls.counts.items()),
              file=sys.stderr)
        super().tearDownClass()

    def setUp(self):
        super().setUp()
        self.home = self.folder / "home"
        self.place = self.folder / "clone"
        stand_ins = self.folder / "stand_ins"
        for folder in (self.home / "models", self.home / "prompts", self.place / "results",
                       stand_ins):
            folder.mkdir(parents=True)
        for name, text in STAND_INS.items():
            (stand_ins / name).write_text(text)
            (stand_ins / name).chmod(stat.S_IRWXU)
        for name in ("app", "inputs", "jobs", "lib", "tests", "tools", "CMakeLists.txt"):
            (self.place / name).symlink_to(SOURCE / name)
        (self.place / "build").symlink_to(BUILD)
        (self.place / "models").symlink_to(self.home / "models")
        self.environment = {
            **os.environ, **ENVIRONMENT, "HOME": str(self.home), "PROGRAM": PROGRAM,
            "SOURCE": str(SOURCE), "PATH": f"{stand_ins}:{pathlib.Path(CMAKE).parent}:"
                                           f"{os.environ['PATH']}"}
        self.prelude = ""

    def bash(self, command, status=0):
        """Output of a command in the folder of the page."""
        done = subprocess.run(["bash", "-c", f"{self.prelude}{command}"], cwd=self.place,
                              env=self.environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, status, f"{command}\n{done.stdout}")
        return done.stdout

    def model(self, name):
        folder = self.home / "models" / name
        if not folder.exists():
            self.bash(f"{PROGRAM} make-model {MODELS[name]} {folder} --no-sync")

    def prepare(self, text):
        """What the user has by now: models, prompts, results of the demo."""
        for name in MODELS:
            if re.search(rf"\b{name}\b", text) or name.lower() in text:
                self.model(name)
        for name in ("a.txt", "b.txt"):
            (self.home / "prompts" / name).write_text("a fox\n")
        (self.home / "prompts.txt").write_text("a red fox\n" * 200)
        (self.home / "model").symlink_to(SOURCE / "inputs/demo_model")
        shutil.copy(SOURCE / "tests/data/machine.cfg", self.home / "node.cfg")
        shutil.copy(SOURCE / "inputs/demo_picture.png", self.place / "boat.jpg")
        transformer = self.home / "models/CogVideoX-2b/transformer"
        if "results/cogvideox-2b-train" in text:
            shutil.copytree(transformer, self.place / "results/cogvideox-2b-train/transformer")
        if "--data.path" in text or "videos" in text:
            (self.place / "videos").symlink_to(self.place / "demo/jumps")
        for output, where in (("demo/output", self.place), ("~/results/first", self.home)):
            if output in text:
                shutil.copytree(self.results / "demo", where / output.removeprefix("~/"))

    def command(self, command):
        """Runs or checks one command of a block `sh`."""
        if command.startswith("export "):
            self.prelude += command + "\n"
        without = "build/tests/reelmesh_emulated" in command and not EMULATED.exists()
        for pattern, _ in CHECKED:
            if re.match(pattern, command) or without:
                self.counts["checked"] += 1
                self.bash(f"bash -n -c {shlex.quote(command)}")
                return
        if "convert_open_sora.py" in command:  # needs PyTorch; its options:
            self.counts["checked"] += 1
            known = set(re.findall(r'"(--[\w-]+)"',
                                   (SOURCE / "tools/convert_open_sora.py").read_text()))
            self.assertLessEqual(set(re.findall(r"--[\w-]+", command)), known)
            return
        self.bash(self.adapted(command))

    def adapted(self, command):
        """As printed; but jobs that are too large for two cores are planned."""
        found = re.match(r"(?:\w+=\S+ )*mpirun -n (\d+) (?:--\S+ (?:none )?)*(\S+) (\w+)(.*)",
                         command, re.S)
        what = "run"
        if found:
            ranks, program, subcommand, options = found.groups()
            small = re.search(r"demo|mine\.cfg|--from", options)
            if subcommand == "plan":  # calibrate, which takes a minute
                self.assertIn("calibrate", options)
                what = "checked"
                command = (f"cp tests/data/machine.cfg {options.split()[1]} && "
                           f"{program} plan calibrate --help")
            elif not small:
                what = "planned"
                options = re.sub(r"--model\.path \S*-I2V", "--preset cogvideox-5b-i2v", options)
                command = f"{program} plan --ranks {ranks}{options}"
        elif "sbatch " in command or "srun " in command:
            what = "planned"
        self.counts[what] += 1
        return command + "".join(more for pattern, more in SHORTER
                                 if re.fullmatch(pattern, command) and not LONG)

    def check(self, name):
        text = (SOURCE / name).read_text()
        self.prepare(text)
        for language, rest, block in pages.blocks(text):
            with self.subTest(block=block[:60]):
                if language == "sh":
                    for command in pages.commands(block):
                        self.command(command)
                elif language == "console":
                    self.check_session(block)
                elif language == "python":
                    self.counts["run"] += 1
                    self.bash(f"PYTHONPATH=tools /usr/bin/python3 -B -c {shlex.quote(block)}")
                elif language == "json":
                    for line in block.splitlines():
                        json.loads(line)
                elif rest:
                    (self.place / rest).write_text(block)

    def check_session(self, block):
        for command, lines in pages.session(block):
            self.counts["run"] += 1
            there = {masked(line) for line in self.bash(command).splitlines()}
            for line in lines:
                line = line.replace("/home/me/reelmesh/build/reelmesh", PROGRAM)
                line = line.replace("/home/me/reelmesh", str(SOURCE))
                line = line.replace("/home/me", str(self.home))
                if not line.startswith("env -C"):  # paths: of links, or of what they lead to
                    self.assertIn(masked(line), there, command)

    def test_all_pages_are_tested(self):
        tested = {name for name in dir(self) if name.startswith("test_page_")}
        for name in pages.installed_pages(SOURCE):
            text = (SOURCE / name).read_text()
            if any(language in ("sh", "console", "python", "json")
                   for language, _, _ in pages.blocks(text)):
                self.assertIn(test_name(name), tested)


def test_name(page):
    return "test_page_" + re.sub(r"\W", "_", page.removesuffix(".md"))


for path in pages.installed_pages(SOURCE):
    if "```" in (SOURCE / path).read_text():
        setattr(PagesTest, test_name(path), lambda self, path=path: self.check(path))

if __name__ == "__main__":
    main()

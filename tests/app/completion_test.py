#!/usr/bin/python3
"""Completion in real shells, and the man page as groff renders it, of what the program prints:
completion_test.py, with the program in REELMESH_PROGRAM.

Every option that the help of a subcommand names is completed and has its place on the man page. A
shell that is not installed is passed over with a line that says so.
"""
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["REELMESH_PROGRAM"]
COMMANDS = ["run", "train", "plan", "plan compare", "plan simulate", "plan calibrate", "plan correct",
            "inspect", "make-model", "completion", "help"]


def say(*words):
    return subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True).stdout


def options_of(command):
    return re.findall(r"^  (--[\w.-]+)", say("help", *command.split()), re.MULTILINE)


class InAShell:
    """Tests of all shells. `candidates(*words)`: what completes the last of the words."""

    @classmethod
    def setUpClass(cls):
        if shutil.which(cls.SHELL) is None:
            print(f"completion_test: passed over: {cls.SHELL} is not installed")
            raise unittest.SkipTest(f"{cls.SHELL} is not installed")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="reelmesh_completion_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.script = cls.folder / "_reelmesh"
        cls.script.write_text(say("completion", cls.SHELL))
        cls.here = cls.folder / "here"
        (cls.here / "clips of mine").mkdir(parents=True)
        (cls.here / "clip.cfg").touch()

    def test_subcommands(self):
        self.assertEqual(self.candidates("reelmesh", ""),
                         {"run", "train", "plan", "inspect", "make-model", "completion", "help"})
        self.assertEqual(self.candidates("reelmesh", "ma"), {"make-model"})
        self.assertEqual(self.candidates("reelmesh", "--v"), {"--version"})
        self.assertEqual(self.candidates("reelmesh", "plan", "c"), {"compare", "calibrate", "correct"})
        self.assertEqual(self.candidates("reelmesh", "help", "i"), {"inspect"})
        self.assertEqual(self.candidates("reelmesh", "completion", "z"), {"zsh"})

    def test_every_option(self):
        for command in COMMANDS:
            expected = set(options_of(command))
            if command in ("plan", "plan compare", "plan simulate"):
                expected |= {*options_of("run"), *options_of("train")}
            self.assertGreater(len(expected), 0)
            self.assertEqual(self.candidates("reelmesh", *command.split(), "--"), expected, command)

    def test_values(self):
        for words, expected in (
                (("run", "--parallel.mode", ""), {"auto", "split", "phased"}),
                (("run", "--sample.steps", "5", "--numerics.dtype", "f"), {"float32", "float16"}),
                (("train", "--data.shuffle", ""), {"yes", "no"}),
                (("train", "--train.optimizer", "l"), {"lion"}),
                (("plan", "compare", "--json", "--trace.level", "s"), {"stages"}),
                (("plan", "--preset", "tiny-st"), {"tiny-stdit", "tiny-stdit3"}),
                (("make-model", "--no-sync", "tiny-st"), {"tiny-stdit", "tiny-stdit3"}),
                (("make-model", "--seed", "7", "opensora-1.2"), {"opensora-1.2"})):
            self.assertEqual(self.candidates("reelmesh", *words), expected, words)

    def test_files_and_folders(self):
        for words, expected in (
                (("run", "--config", "cl"), {"clip.cfg", "clips of mine"}),
                (("run", "--model.path", "cl"), {"clips of mine"}),
                (("inspect", "cl"), {"clip.cfg", "clips of mine"}),
                (("make-model", "tiny-wan", "cl"), {"clips of mine"}),
                (("make-model", "--no-sync", "tiny-wan", "cl"), {"clips of mine"}),
                (("plan", "correct", "--to", "clip."), {"clip.cfg"}),
                (("run", "--device.machine", "n"), {"none"})):
            found = {name.rstrip("/") for name in self.candidates("reelmesh", *words)}
            self.assertEqual(found, expected, words)


class Bash(InAShell, unittest.TestCase):
    SHELL = "bash"

    def candidates(self, *words):
        """As bash calls the function: "=" is a word of its own."""
        given = [part for word in words for part in re.split("(?<==)|(?==)", word) if part or not word]
        call = ('source "$0"; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                "_reelmesh && printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "--norc", "-euc", call, self.script, *given], cwd=self.here,
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return set(done.stdout.split("\n")) - {""}

    def test_is_bound_to_the_program(self):
        done = subprocess.run(["bash", "--norc", "-c", 'source "$0"; complete -p reelmesh',
                               self.script], capture_output=True, text=True)
        self.assertEqual(done.stdout, "complete -F _reelmesh reelmesh\n")

    def test_values_after_an_equals_sign(self):
        self.assertEqual(self.candidates("reelmesh", "run", "--parallel.mode="),
                         {"auto", "split", "phased"})
        self.assertEqual(self.candidates("reelmesh", "run", "--parallel.mode=s"), {"split"})
        self.assertEqual(self.candidates("reelmesh", "make-model", "--seed=7", "tiny-wan", "cl"),
                         {"clips of mine"})

    def test_after_a_launcher(self):
        self.assertEqual(self.candidates("mpirun", "-n", "4", "build/reelmesh", "run", "--trace.l"),
                         {"--trace.level"})
        self.assertEqual(self.candidates("mpirun", "-n", "4", "some"), set())

    def test_the_line_that_a_user_types(self):
        terminal = Terminal(["bash", "--norc", "-i"], self.here)
        self.addCleanup(terminal.close)
        terminal.type(f"source {self.script}")
        terminal.type("reelmesh() { printf '<%s>' \"$@\"; echo; }")
        typed = terminal.type(
            "reelmesh run --parallel.mode sp\t --config clip.\t --model.path clips\tx")
        self.assertIn("<run><--parallel.mode><split><--config><clip.cfg>"
                      "<--model.path><clips of mine/x>", typed)


class Zsh(InAShell, unittest.TestCase):
    SHELL = "zsh"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.offered = cls.folder / "offered"
        cls.terminal = Terminal(["zsh", "-f", "-i"], cls.here)
        cls.addClassCleanup(cls.terminal.close)
        for line in (f"fpath=({cls.folder} $fpath)", "autoload -U compinit", "compinit -u -D",
                     "LISTMAX=100000",  # lists without asking
                     "reelmesh() { printf '<%s>' \"$@\"; echo; }",
                     # What the completion system would add.
                     "compadd() { local -a found; builtin compadd -O found \"$@\"; "
                     f"print -rl -- $found >>{cls.offered}; builtin compadd \"$@\" }}"):
            cls.terminal.type(line)

    def candidates(self, *words):
        self.offered.write_text("")
        self.terminal.type(" ".join(word.replace(" ", "\\ ") for word in words) + "\t\x15")
        # An option that takes a value may be followed by "="; file names are quoted.
        return {name.removesuffix("=").replace("\\ ", " ")
                for name in self.offered.read_text().split("\n")} - {""}

    def test_the_line_that_a_user_types(self):
        typed = self.terminal.type(
            "reelmesh run --parallel.mode sp\t --config=clip.\t--trace.level of\t")
        self.assertIn("<run><--parallel.mode><split><--config=clip.cfg><--trace.level><off>", typed)


class Fish(InAShell, unittest.TestCase):
    SHELL = "fish"

    def candidates(self, *words):
        line = " ".join(word.replace(" ", "\\ ") for word in words)
        done = subprocess.run(["fish", "--no-config", "-c",
                               f"source {self.script}; complete -C $argv[1]", line], cwd=self.here,
                              capture_output=True, text=True,
                              env={**os.environ, "HOME": str(self.folder)})
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return {row.split("\t")[0] for row in done.stdout.split("\n")} - {""}


class Terminal:
    """An interactive shell in a pseudo-terminal."""

    def __init__(self, shell, folder):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.chdir(folder)
            os.environ.update(PS1="", PROMPT_COMMAND="", TERM="dumb", HISTFILE="/dev/null",
                              INPUTRC="/dev/null", HOME=str(folder), LC_ALL="C.UTF-8")
            os.execvp(shell[0], shell)
        self.lines = 0
        self.type("stty -echo")

    def type(self, line):
        """What the shell prints. A tab is typed as a user does it, who looks before going on."""
        self.lines += 1
        mark = f"ready-{self.lines}-"
        for part in re.split("(?<=\t)", line):
            os.write(self.terminal, part.encode())
            time.sleep(0.1 if "\t" in part else 0)
        os.write(self.terminal, f"\necho rea''dy-{self.lines}-\n".encode())
        printed, end = b"", time.monotonic() + 60
        while mark.encode() not in printed and time.monotonic() < end:
            if select.select([self.terminal], [], [], 1)[0]:
                printed += os.read(self.terminal, 65536)
        return re.sub("\x1b\\[[0-9;?]*[A-Za-z]|\r", "", printed.decode(errors="replace"))

    def close(self):
        os.kill(self.child, signal.SIGHUP)
        os.close(self.terminal)
        os.waitpid(self.child, 0)


class ManPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.roff = say("help", "--man")
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-c", "-P-b", "-P-u", "-rLL=200n"],
                              input=cls.roff, capture_output=True, text=True)
        cls.warnings = done.stderr
        cls.text = done.stdout.replace("\N{HYPHEN}", "-").replace("\N{MINUS SIGN}", "-")

    def test_groff_has_no_warning(self):
        self.assertEqual(self.warnings, "")
        self.assertEqual([line for line in self.roff.split("\n") if len(line) > 100], [])

    def test_sections(self):
        for title in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "EXAMPLES"):
            self.assertRegex(self.text, rf"(?m)^{title}$")
        self.assertIn(say("--version").split()[1], self.text)

    def test_every_option_has_its_description(self):
        parts = dict(zip(COMMANDS, re.split(r"(?m)^reelmesh (?:[a-z-]+ ?)+$", self.text)[1:]))
        self.assertEqual(len(parts), len(COMMANDS))
        for command, part in parts.items():
            shown = " ".join(part.split())
            lines = say("help", *command.split())
            for option in options_of(command):
                self.assertRegex(part, rf"(?m)^ +{re.escape(option)}( |$)", command)
            for example in re.findall(r"(?m)^  (.+)$", lines.split("\nExamples\n")[1]):
                self.assertIn(" ".join(example.split()), shown, command)
        for status in ("64", "75"):
            self.assertRegex(self.text, rf"(?m)^ +{status} ")

    def test_texts_are_those_of_the_help(self):
        shown = " ".join(self.text.split())
        for words in ("'A red fox walks through snow'", "A job file has [section] lines",
                      "save clips in progress, or the state of a training, every N steps"):
            self.assertIn(words, shown)


if __name__ == "__main__":
    unittest.main()

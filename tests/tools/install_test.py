#!/usr/bin/python3
"""cmake --install: which files it gives, that they work in another folder without the repository's,
and that no path of the repository or of the build folder is in them."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import results_support

SOURCE = pathlib.Path(os.environ["REELMESH_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/end_to_end"))
import pages  # noqa: E402

BUILD = pathlib.Path(os.environ["REELMESH_BUILD"])
CMAKE = os.environ["REELMESH_CMAKE"]
TOOLS = sorted(path.name for path in SOURCE.glob("tools/reelmesh-*"))


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="reelmesh_install_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = cls.folder / "prefix"
        cls.share = cls.prefix / "share" / "reelmesh"
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", "prefix/"], cwd=cls.folder,
                       check=True, stdout=subprocess.DEVNULL)
        cls.elsewhere = cls.folder / "elsewhere"
        cls.elsewhere.mkdir()

    def call(self, *arguments):
        """Standard output of a program in P/bin, called in a folder that has no inputs."""
        program, *rest = arguments
        done = subprocess.run([self.prefix / "bin" / program, *rest], cwd=self.elsewhere,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_files(self):
        files = {str(path.relative_to(self.prefix))
                 for path in self.prefix.rglob("*") if not path.is_dir()}
        self.assertIn("bin/reelmesh", files)
        for name in TOOLS:
            self.assertEqual(os.readlink(self.prefix / "bin" / name),
                             f"../share/reelmesh/tools/{name}")
        for name in ("LICENSE", "README.md", "tools/licences.md",
                     "inputs/README.md", "jobs/README.md",
                     "inputs/prompts.txt", "inputs/demo_model/vae/config.json",
                     "inputs/demo_image_model/transformer/config.json",
                     "inputs/demo_picture.png",
                     "tools/reelmesh_results/sheet.py", "tools/reelmesh_results/report/timeline.js",
                     "tools/reelmesh_results/report/page.css", "tools/reelmesh_results/report/page.html",
                     "tools/reelmesh_results/report/schema.json", "tools/convert_open_sora.py",
                     "tools/tensorboard_training", "tools/drawn_clips/scenes.py",
                     "lib/base/span_names.hpp"):
            self.assertIn(f"share/reelmesh/{name}", files)
        # All job files and batch scripts.
        for pattern in ("inputs/*.cfg", "jobs/*.sbatch"):
            for path in SOURCE.glob(pattern):
                self.assertIn(f"share/reelmesh/{path.relative_to(SOURCE)}", files)
        self.assertFalse([name for name in files if "__pycache__" in name])

    def test_no_path_of_the_repository(self):
        for path in self.prefix.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                for folder in (SOURCE, BUILD):
                    found = re.search(rb"(?<![\w./-])" + re.escape(os.fsencode(folder)) + b"/[^\0]*",
                                      content)
                    self.assertIsNone(found, path)

    def test_paths_of_job_files_and_batch_scripts_exist(self):
        count = 0
        for path in (*self.share.glob("inputs/*.cfg"), *self.share.glob("jobs/*.sbatch")):
            text = path.read_text()
            self.assertNotIn("build/", text, path)
            for name in re.findall(rf"{re.escape(str(self.prefix))}/[\w./-]+\w", text):
                self.assertTrue(pathlib.Path(name).exists(), f"{path}: {name}")
                count += 1
        self.assertGreater(count, 30)
        self.assertIn(f"REELMESH=${{REELMESH:-{self.prefix}/bin/reelmesh}}\n",
                      (self.share / "jobs/cogvideox.sbatch").read_text())

    def test_pages(self):
        """Pages for users name what is installed; those for developers are not there."""
        found = {str(path.relative_to(self.share)) for path in self.share.rglob("*.md")}
        cards = {f"inputs/{model}/MODEL_CARD.md" for model in ("demo_model", "demo_image_model")}
        self.assertEqual(found, {*pages.installed_pages(SOURCE), *cards})
        self.assertEqual(pages.installed_problems(self.share), [])
        for name in found - cards:
            text = (self.share / name).read_text()
            self.assertIsNone(re.search("(?<!/)build/reelmesh ", text), name)
            self.assertNotIn("For developers", text, name)

    def test_man_page_and_completion(self):
        for name, words in (("man/man1/reelmesh.1", ("help", "--man")),
                            ("bash-completion/completions/reelmesh", ("completion", "bash")),
                            ("zsh/site-functions/_reelmesh", ("completion", "zsh")),
                            ("fish/vendor_completions.d/reelmesh.fish", ("completion", "fish"))):
            text = (self.prefix / "share" / name).read_text()
            self.assertEqual(text, self.call("reelmesh", *words))
            self.assertIn("sample.dynamic", text.replace("\\-", "-"))

    def test_program(self):
        self.assertTrue(self.call("reelmesh", "--version").startswith("reelmesh "))
        self.assertIn("CogVideoXPipeline",
                      self.call("reelmesh", "inspect", self.share / "inputs/demo_model"))
        self.assertIn("tokenizer of 1100 ids",
                      self.call("reelmesh", "make-model", "tiny-cogvideox", "tiny"))
        # The text that is compiled in is that of the file.
        self.call("reelmesh", "make-model", "tiny-cogvideox", "same", "--text",
                  SOURCE / "inputs/tokenizer_text.txt")
        self.assertEqual(*((self.elsewhere / name / "tokenizer/spiece.model").read_bytes()
                           for name in ("tiny", "same")))
        self.assertIn("9x64x64", self.call("reelmesh", "plan", "--config",
                                           self.share / "inputs/demo.cfg", "--ranks", "4"))

    def test_tools(self):
        """Each in P/bin, on result files, with its options' default places."""
        out = self.elsewhere / "out"
        results_support.write_job(out, clips=2, spans=100, ranks=2, frames=2, height=32, width=32)
        for name in TOOLS:
            self.assertIn("Exit status: 0 ", self.call(name, "--help"))
        subprocess.run([self.share / "tools/make_training_clips", "jumps", "--count", "1"],
                       check=True, cwd=self.elsewhere)
        self.assertTrue((self.elsewhere / "jumps/000.mkv").exists())
        self.assertIn("2 clips in", self.call("reelmesh-view", out, "--no-mp4"))
        self.assertIn("2 clips: the same bits", self.call("reelmesh-compare", out, out))
        self.assertIn(" spans, ", self.call("reelmesh-trace", out))
        self.assertIn("2 clips in", self.call("reelmesh-export", out, "--all", "--to", "exported",
                                              "--format", "png,npy,safetensors"))
        self.assertIn("report.html", self.call("reelmesh-report", out))
        self.assertEqual(sorted(path.name for path in out.iterdir()),
                         ["clips", "job.h5", "report.html", "trace.h5", "trace.json", "view"])
        self.assertFalse(list(self.prefix.rglob("__pycache__")))


if __name__ == "__main__":
    unittest.main()

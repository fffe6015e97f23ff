"""Bad images and videos (bad_media.py): `run` and `plan` refuse each with one message that names the
file, in little memory, and leave nothing behind."""

import concurrent.futures
import os
import subprocess
import tempfile

from bad_media import bad_media
from media import MEDIA, MediaReference
from support import ENVIRONMENT, ERROR, PROGRAM, Outcome, Scratch, arguments, main

MEMORY = 192 << 10  # KiB; a good image or video needs less, too


class BadMedia(Scratch):
    def tried(self, command, options):
        """The outcome, and the largest resident memory in KiB."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                ["timeout", "60", PROGRAM, *command, *arguments(options)], stdout=output,
                stderr=errors, stdin=subprocess.DEVNULL, env={**os.environ, **ENVIRONMENT})
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            errors.seek(0)
            return Outcome(process.returncode, output.read(), errors.read(), 0), usage.ru_maxrss

    def options(self, kind, path, output):
        options = MediaReference({"image": "i2v", "video": "sincos"}[kind]).options(
            output, device__backend="cpu", prompt__text="one", sample__steps=2)
        del options["sample.frames"]
        return options | {f"prompt.{kind}": path}

    def test_good_files_are_accepted(self):
        for kind, name in (("image", "wide.png"), ("image", "photo.jpg"), ("video", "exact.mkv")):
            outcome, memory = self.tried(["run"], self.options(kind, MEDIA / name,
                                                             self.folder / name.split(".")[0]))
            self.assertEqual(outcome.status, 0, outcome)
            self.assertLess(memory, MEMORY)

    def test_bad_files_are_refused(self):
        folder = self.folder / "files"
        folder.mkdir()
        output = self.folder / "output"
        # `plan` checks the same as the beginning of `run`, so it tries only some.
        cases = [(file, command) for index, file in enumerate(bad_media(folder))
                 for command in (["run"], ["plan", "--ranks", "2"])[:1 if index % 4 else 2]]
        with concurrent.futures.ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            tried = pool.map(lambda case: self.tried(case[1], self.options(
                case[0].kind, case[0].path, output)), cases)
            accepted = []  # by `plan`, which does not decode JPEG files and videos
            for (file, command), (outcome, memory) in zip(cases, tried):
                with self.subTest(file=file.name, command=command[0]):
                    if command[0] == "plan" and outcome.status == 0:
                        accepted.append(file.name)
                        continue
                    self.assertEqual(outcome.status, file.status, outcome)
                    self.assertEqual(outcome.output, "")
                    self.assertTrue(outcome.errors.startswith(
                        f"{ERROR}prompt.{file.kind}: {file.path}: "), outcome)
                    self.assertEqual(outcome.errors.count("\n"), 1, outcome)
                    self.assertIn(file.message, outcome.errors)
                    self.assertLess(memory, MEMORY)
        self.assertLess(len(accepted), 4, accepted)
        self.assertFalse(output.exists())


if __name__ == "__main__":
    main()

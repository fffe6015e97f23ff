"""Clips that begin with an image: equal to diffusers' CogVideoXImageToVideoPipeline; saved and
continued, run again, and refused with another image. tests/pipeline/layouts compares the layouts."""

import json
import shutil
import signal

import h5py
import numpy

from interrupted import Interrupted
from media import MEDIA, MediaReference, add_parity_tests, check_same_clips
from support import (BACKEND, ERROR, LONG, MPIRUN, PROGRAM, WARNING, arguments, command_of,
                     execute, main, read_clip, relative, rms, run, send)

STOPPED = 75
STEPS = 40 if BACKEND else 100
KINDS = ("i2v", "i2v_1_5")


class ImageToVideo(Interrupted):
    def stop(self, ranks, options):
        """Stops the job after a few steps of all its clips."""
        saved_all = lambda: {0, 1} <= {clip for clip, step in self.saved_quietly().items()
                                       if step >= 3}
        to_one_rank = lambda job, processes: send(signal.SIGTERM, processes[-1:])
        outcome = self.disturb(ranks, to_one_rank, options, saved_all)
        self.assertEqual(outcome.status, STOPPED, outcome)

    def test_saved_and_continued(self):
        """The encoded images in the restart files equal the reference's; the clips go on from
        there on other ranks, with the bits of a job that was not disturbed."""
        table = (("i2v", "float32", 3, {"parallel.mode": "split"}, 2, {}),
                 ("i2v_1_5", "float32", 2, {"parallel.cfg": 2}, 4, {"parallel.mode": "split"}),
                 ("i2v", "bfloat16", 1, {}, 3, {"parallel.ring": 3}))
        for kind, dtype, ranks, layout, later, later_layout in table if LONG else table[1:]:
            with self.subTest(kind=kind, dtype=dtype):
                shutil.rmtree(self.output, ignore_errors=True)
                reference = MediaReference(kind)
                options = reference.options(
                    self.output, sample__steps=STEPS, sample__batch=2, numerics__dtype=dtype,
                    prompt__file=reference.prompt_file(self.folder))
                expected = self.make(options | {"output.path": self.folder / f"{kind} {dtype}"})
                self.stop(ranks, options | layout | {"restart.every": 1})
                for index, (name, case) in enumerate(reference.cases.items()):
                    with h5py.File(self.output / "restart" / f"{index:06}.h5") as file:
                        image = file["image_latents"][0]
                    encoded = reference.tensors[f"{name}.encoded"]
                    if dtype == "float32":
                        self.assertLessEqual(relative(image, encoded), 1e-5)
                    else:
                        error = rms(image, encoded) / numpy.abs(encoded).max()
                        self.assertLessEqual(error, 1.5 * case["bfloat16"]["encoded"]["rms"])
                again = self.make(options | later_layout | {"output.if-exists": "resume"}, later)
                check_same_clips(self, again, expected, 2)
                self.assertFalse((self.output / "restart").exists())

    def test_in_a_folder_whose_name_is_not_utf8(self):
        """Neither JSON nor HDF5 takes the path of the image: job.h5 has it as it was given."""
        reference = MediaReference("i2v")
        folder = self.folder / "caf\udce9"
        folder.mkdir()
        shutil.copy(MEDIA / "exact.png", folder / "image.png")
        options = reference.options("out", sample__steps=1, prompt__image="image.png",
                                    prompt__text="one")
        variable = {"OMPI_MCA_reelmesh_test": "\udcff"}
        outcome = execute(command_of(options), variable, folder=folder)
        self.assertEqual((outcome.status, outcome.lines(ERROR)), (0, []), outcome)
        with h5py.File(folder / "out" / "job.h5") as file:
            self.assertEqual(json.loads(file["requests"][0])["image"], "image.png")
            found = file["provenance"].attrs
            self.assertEqual(found["working_folder"], f"{self.folder}/caf\ufffd")
            self.assertIn("OMPI_MCA_reelmesh_test=\ufffd", list(found["environment"]))
        again = execute(command_of({"from": "out/job.h5", "output.path": "again"}), folder=folder)
        self.assertEqual(again.status, 0, again)
        check_same_clips(self, folder / "again", folder / "out", 1)

    def test_goes_on_only_with_the_same_image(self):
        reference = MediaReference("i2v")
        image = self.folder / "image.png"
        shutil.copy(MEDIA / "exact.png", image)
        options = reference.options(
            self.output, sample__steps=STEPS, sample__batch=2, prompt__image=image,
            prompt__text=["one", "two"])
        other = self.make(options | {"output.path": self.folder / "other",
                                     "prompt.image": MEDIA / "wide.png"})
        self.stop(2, options | {"restart.every": 1})
        shutil.copy(MEDIA / "wide.png", image)
        outcome = run(options | {"output.if-exists": "resume"})
        self.assertEqual(outcome.status, 0, outcome)
        self.assertEqual(len(outcome.lines(WARNING)), 2, outcome)  # one for each restart file
        self.assertNotIn("goes on", outcome.errors)
        check_same_clips(self, self.output, other, 2)
        # Complete clips, too, are of their image.
        shutil.copy(MEDIA / "exact.png", image)
        outcome = run(options | {"output.if-exists": "resume"})
        self.assertEqual(outcome.status, 0, outcome)
        self.assertNotIn("complete already", outcome.errors)
        self.assertNotEqual(read_clip(self.output)["video"].tobytes(),
                            read_clip(other)["video"].tobytes())

    def test_run_again(self):
        """--from needs the same image; paths that were relative are found."""
        reference = MediaReference("i2v")
        first = self.folder / "first"
        first.mkdir()
        shutil.copy(MEDIA / "exact.png", first / "image.png")
        lines = [{"prompt": "one", "image": "image.png"},
                 {"prompt": "two", "image": str(MEDIA / "wide.png")}]
        (first / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        options = {"device.backend": BACKEND or "cpu"} | reference.options(
            "output", prompt__file="prompts.jsonl")
        outcome = execute([PROGRAM, "run"] + arguments(options), folder=first)
        self.assertEqual(outcome.status, 0, outcome)
        again = lambda name, *launcher: execute(
            [*launcher, PROGRAM, "run", "--from", first / "output/job.h5", "--output.path",
             self.folder / name], folder=self.folder)
        outcome = again("again", MPIRUN, "-n", 2)
        self.assertEqual(outcome.status, 0, outcome)
        check_same_clips(self, self.folder / "again", first / "output", 2)
        shutil.copy(MEDIA / "small.png", first / "image.png")
        outcome = again("third")
        self.assertEqual(outcome.status, 65, outcome)
        self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
        self.assertIn("image.png", outcome.lines(ERROR)[0])
        self.assertFalse((self.folder / "third").exists())
        (first / "image.png").unlink()
        outcome = again("fourth")
        self.assertEqual(outcome.status, 66, outcome)
        self.assertIn("image.png", outcome.lines(ERROR)[0])


add_parity_tests(ImageToVideo, KINDS)

if __name__ == "__main__":
    main()

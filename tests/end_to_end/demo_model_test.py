"""The demo's models show what their prompts and pictures say, judged by tools/score_demo, for each
dtype."""

import json
import os
import pathlib
import subprocess
import sys

from support import Scratch, main, only_long

SOURCE = pathlib.Path(os.environ["REELMESH_SOURCE"])
MODEL = SOURCE / "inputs/demo_model"
PROMPTS = 12  # of combinations that the model was never trained on
LEAST = {"colour": 90, "shape": 80, "motion": 85}  # per cent
# Of clips from pictures, and at most of the same clips with the pictures of others.
LEAST_KEPT = {"colour": 90, "shape": 80, "motion": 85, "place": 90, "background": 90}
MOST_SHUFFLED = {"colour": 40, "place": 40, "whole_clip": 10}


class Scored(Scratch):
    def scores(self, output, *options):
        """All scores of tools/score_demo, as a dict."""
        file = self.folder / "scores.json"
        subprocess.run([sys.executable, "-B", SOURCE / "tools/score_demo", output, "--json", file,
                        *options], check=True, stdout=subprocess.DEVNULL, timeout=120)
        result = json.loads(file.read_text())
        self.assertEqual(result["summary"]["clips"], PROMPTS)
        return result

    def assert_at_least(self, result, shares):
        wrong = [(clip["prompt"], clip["picture"], clip["found"])
                 for clip in result["clips"] if not clip["clip"]]
        for share, least in shares.items():
            self.assertGreaterEqual(result["summary"][share], least,
                                    f"{share}: {result['summary']}; not right: {wrong}")


class DemoModel(Scored):
    def setUp(self):
        super().setUp()
        self.assertTrue((MODEL / "model_index.json").is_file(), f"no checkpoint in {MODEL}")
        lines = (SOURCE / "inputs/demo_heldout.txt").read_text().splitlines()
        self.prompts = [line for line in lines if line and not line.startswith("#")][:PROMPTS]
        self.assertEqual(len(self.prompts), PROMPTS)

    def options(self, name, prompts, **more):
        file = self.folder / f"{name}.txt"
        file.write_text("\n".join(prompts) + "\n")
        options = {"config": SOURCE / "inputs/demo.cfg", "model.path": MODEL, "prompt.file": file,
                   "output.path": self.folder / name}
        return options | {key.replace("_", "."): value for key, value in more.items()}

    @only_long
    def test_float32(self):
        output = self.make(self.options("float32", self.prompts))
        self.assert_at_least(self.scores(output), LEAST)

    def test_bfloat16(self):
        output = self.make(self.options("bfloat16", self.prompts, numerics_dtype="bfloat16"))
        self.assert_at_least(self.scores(output), LEAST)


class DemoImageModel(Scored):
    """Pictures and prompts of combinations that the model was never trained on."""

    def options(self, name, **more):
        pictures = self.folder / "pictures"
        subprocess.run([sys.executable, "-B", SOURCE / "tools/score_demo", "--pictures",
                        str(PROMPTS), "--to", pictures], check=True)
        # Replaces the prompts and the picture of the job file, and its relative paths.
        parts = {f"model.{part}": SOURCE / "inputs/demo_model" / part.replace("-", "_")
                 for part in ("vae", "text-encoder", "tokenizer", "scheduler")}
        return {"config": SOURCE / "inputs/demo_picture.cfg",
                "model.path": SOURCE / "inputs/demo_image_model", **parts,
                "prompt.image": SOURCE / "inputs/demo_picture.png",
                "prompt.file": pictures / "prompts.jsonl",
                "output.path": self.folder / name, **more}

    def test_float32(self):
        output = self.make(self.options("float32"))
        self.assert_at_least(self.scores(output), LEAST_KEPT)
        shuffled = self.scores(output, "--shuffle", "pictures")["summary"]
        for share, most in MOST_SHUFFLED.items():
            self.assertLessEqual(shuffled[share], most, f"{share}: {shuffled}")

    @only_long
    def test_bfloat16(self):
        output = self.make(self.options("bfloat16", **{"numerics.dtype": "bfloat16"}))
        self.assert_at_least(self.scores(output), LEAST_KEPT)


if __name__ == "__main__":
    main()

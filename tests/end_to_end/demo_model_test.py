"""The demo's model shows what its prompts say, judged by tools/score_demo, for each dtype."""

import json
import os
import pathlib
import subprocess
import sys

from support import Scratch, main

SOURCE = pathlib.Path(os.environ["REELMESH_SOURCE"])
MODEL = SOURCE / "inputs/demo_model"
PROMPTS = 12  # of combinations that the model was never trained on
LEAST = {"colour": 90, "shape": 80, "motion": 85}  # per cent


class DemoModel(Scratch):
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

    def assert_shows_its_prompts(self, output):
        scores = self.folder / "scores.json"
        subprocess.run([sys.executable, "-B", SOURCE / "tools/score_demo", output, "--json",
                        scores], check=True, stdout=subprocess.DEVNULL, timeout=120)
        result = json.loads(scores.read_text())
        self.assertEqual(result["summary"]["clips"], PROMPTS)
        wrong = [(clip["prompt"], clip["found"]) for clip in result["clips"] if not clip["clip"]]
        for share, least in LEAST.items():
            self.assertGreaterEqual(result["summary"][share], least,
                                    f"{share}: {result['summary']}; not right: {wrong}")

    def test_float32(self):
        self.assert_shows_its_prompts(self.make(self.options("float32", self.prompts)))

    def test_bfloat16(self):
        self.assert_shows_its_prompts(
            self.make(self.options("bfloat16", self.prompts, numerics_dtype="bfloat16")))


if __name__ == "__main__":
    main()

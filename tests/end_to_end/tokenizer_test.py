"""Folders of tokenizers as the slow and fast classes of transformers 4, and transformers 5, write
them."""

import json
import shutil

import support
from support import DATA, ERROR, Scratch, main, read_clip, run

SOURCE = DATA.parents[2]
MODEL = SOURCE / "inputs/demo_model"
SAVED_BY_5 = DATA.parent / "tokenizer_of_transformers5"
PROMPT = "a red circle moves over a green field"


class Tokenizers(Scratch):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        shutil.copytree(MODEL, self.model)
        self.tokenizer = self.model / "tokenizer"

    def saved_by_5(self, *more):
        """The tokenizer's folder as save_pretrained of transformers 5 writes it, and other files."""
        shutil.rmtree(self.tokenizer)
        self.tokenizer.mkdir()
        for path in [SAVED_BY_5 / "tokenizer.json", SAVED_BY_5 / "tokenizer_config.json", *more]:
            shutil.copy(path, self.tokenizer)

    def edit(self, file, **values):
        """Sets keys of a JSON file."""
        path = self.model / file
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    def options(self, *texts, **more):
        return {"model.path": self.model, "prompt.text": list(texts), "sample.height": 16,
                "sample.width": 16, "sample.frames": 1, "sample.steps": 1,
                "output.path": self.folder / "out", "output.if-exists": "replace"} | more

    def ids(self, *texts):
        """The ids of texts, up to the first padding."""
        output = self.make(self.options(*texts))
        found = [read_clip(output, i)["token_ids"].tolist() for i in range(len(texts))]
        return [ids[:len(ids) - ids[::-1].index(1)] for ids in found]

    def test_what_transformers_5_saves_is_read(self):
        before = read_clip(self.make(self.options(PROMPT)))
        self.saved_by_5()
        after = read_clip(self.make(self.options(PROMPT)))
        for array in ("token_ids", "latents", "video"):
            self.assertEqual(after[array].tobytes(), before[array].tobytes(), array)

        cases = json.loads((SAVED_BY_5 / "odd_prompts.json").read_text("utf-8"))["prompts"]
        cases = [case for case in cases
                 if case["max_length"] >= 32 and case["text"].strip() and "\0" not in case["text"]
                 and len(case["results"][0]["ids"]) <= 32][:12]
        self.assertEqual(len(cases), 12)
        self.assertEqual(self.ids(*(case["text"] for case in cases)),
                         [case["results"][0]["ids"] for case in cases])

        outcome = support.execute([support.PROGRAM, "inspect", self.model], None, 60)
        self.assertEqual(outcome.status, 0, outcome)
        self.assertIn("tokenizer: T5Tokenizer\n  272 ids, from tokenizer.json\n", outcome.output)

    def test_the_class_decides_between_two_files(self):
        # T5Tokenizer of transformers 4 keeps the ▁ apart; tokenizer.json does not.
        slow, fast = [[170, 3, 1]], [[3, 1]]
        shutil.copy(SAVED_BY_5 / "tokenizer.json", self.tokenizer)
        self.assertEqual(self.ids("▁a"), slow)
        self.edit("model_index.json", tokenizer=["transformers", "T5TokenizerFast"])
        self.assertEqual(self.ids("▁a"), fast)
        self.edit("model_index.json", tokenizer=["transformers", "T5Tokenizer"])
        self.saved_by_5(MODEL / "tokenizer/spiece.model")
        self.assertEqual(self.ids("▁a"), fast)

    def test_legacy_of_the_slow_tokenizer(self):
        text = "red<extra_id_1> circle"
        self.assertEqual(self.ids(text), [[23, 270, 8, 1]])
        self.edit("tokenizer/tokenizer_config.json", legacy=None)
        self.assertEqual(self.ids(text), [[23, 270, 8, 1]])
        self.edit("tokenizer/tokenizer_config.json", legacy=False)
        self.assertEqual(self.ids(text), [[23, 270, 157, 164, 166, 157, 167, 169, 1]])

    def test_a_folder_without_either_file(self):
        (self.tokenizer / "spiece.model").unlink()
        outcome = run(self.options(PROMPT))
        self.assertEqual(outcome.status, 66, outcome)
        self.assertEqual(outcome.lines(ERROR), [
            f"{ERROR}{self.tokenizer}: found neither spiece.model nor tokenizer.json, expected one "
            "of them (model.tokenizer gives another folder)"])


if __name__ == "__main__":
    main()

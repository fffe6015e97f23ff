"""Keys of a line in a prompts file that give token ids or cleaned prompts instead of a prompt, for
both model families."""

import json
import shutil

import opensora_test
import support
from support import ERROR, Scratch, clip_file, main, read_clip, run

TEXTS = ["A SMALL boat drifts across a quiet lake", "A red fox runs."]


class TokenIds(Scratch):
    def prompts(self, lines):
        path = self.folder / "clips.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def options(self, reference, output, lines, **more):
        options = reference.options(self.folder / output) | {
            "sample.steps": 2, "output.embeddings": "yes", "prompt.file": self.prompts(lines)}
        options.pop("prompt.text", None)
        return options | more

    def references(self):
        return (opensora_test.Reference("v1_0"), opensora_test.Reference("v1_2"),
                support.Reference("sincos"))

    def test_ids_of_the_tokenizer_give_the_bits_of_the_text(self):
        for i, reference in enumerate(self.references()):
            lines = [{"prompt": text, "negative_prompt": ""} for text in TEXTS]
            output = self.make(self.options(reference, f"texts_{i}", lines))
            texts = [read_clip(output, clip) for clip in (0, 1)]
            ids = [clip["token_ids"].tolist() for clip in texts]
            # The second line also has a prompt, and its ids lack the padding of CogVideoX's ids.
            lines = [{"token_ids": ids[0]},
                     {"token_ids": ids[1][:ids[1].index(1) + 1], "prompt": "fox"}]
            output = self.make(self.options(reference, f"ids_{i}", lines))
            for index, (text, name) in enumerate(zip(texts, ("", "fox"))):
                clip = read_clip(output, index)
                with self.subTest(model=reference.model.name, clip=index):
                    for array in ("token_ids", "latents", "video", "prompt_embeds"):
                        self.assertEqual(clip[array].tobytes(), text[array].tobytes(), array)
                    self.assertEqual(clip["attributes"]["prompt"], name)

    def test_a_tokenizer_may_have_other_sentinels_than_100(self):
        reference = support.Reference("sincos")
        tokenizer = self.folder / "tokenizer"
        shutil.copytree(reference.model / "tokenizer", tokenizer)
        config = json.loads((tokenizer / "tokenizer_config.json").read_text())
        options = self.options(reference, "out", [{"prompt": "a fox <extra_id_0>"}]) | {
            "model.tokenizer": tokenizer, "output.if-exists": "replace"}
        ids = {}
        for sentinels in (100, 0):  # their ids follow 250 pieces
            (tokenizer / "tokenizer_config.json").write_text(
                json.dumps(config | {"extra_ids": sentinels}))
            ids[sentinels] = read_clip(self.make(options), 0)["token_ids"].tolist()
        self.assertEqual(max(ids[100]), 349)
        self.assertLess(max(ids[0]), 250)
        (tokenizer / "tokenizer_config.json").write_text(json.dumps(config | {"extra_ids": 103}))
        outcome = run(options)
        self.assertEqual(outcome.status, 65, outcome)
        self.assertIn("found 353 ids, expected at most 352, the rows of the embedding",
                      outcome.lines(ERROR)[0])

    def test_a_line_is_cleaned_or_not(self):
        reference = opensora_test.Reference("v1_0")
        lines = [{"prompt": TEXTS[0]}, {"prompt": TEXTS[0], "clean": False},
                 {"prompt": TEXTS[0].lower(), "clean": False}, {"prompt": TEXTS[0], "clean": True}]
        for clean in ("yes", "no"):
            output = self.make(self.options(reference, clean, lines) | {
                "prompt.clean": clean, "output.video": "no"})
            ids = [read_clip(output, i)["token_ids"].tolist() for i in range(4)]
            self.assertNotEqual(ids[1], ids[2])
            self.assertEqual(ids[3], ids[2])
            self.assertEqual(ids[0], ids[3 if clean == "yes" else 1])

    def test_resume_makes_clips_of_other_ids_anew(self):
        reference = opensora_test.Reference("v1_0")
        lines = [{"token_ids": [50, 60, 1]}, {"token_ids": [70, 80, 1]}]
        output = self.make(self.options(reference, "out", lines))
        before = [clip_file(output, i).stat().st_mtime_ns for i in (0, 1)]
        lines[1]["token_ids"] = [70, 81, 1]
        self.make(self.options(reference, "out", lines) | {"output.if-exists": "resume"})
        after = [clip_file(output, i).stat().st_mtime_ns for i in (0, 1)]
        self.assertEqual(after[0], before[0])
        self.assertNotEqual(after[1], before[1])
        self.assertEqual(read_clip(output, 1)["token_ids"].tolist(), [70, 81, 1])

    def test_refuses_ids_that_the_model_cannot_take(self):
        for reference in self.references():
            for ids, said in (([5, 6], "found 6 as last id, expected 1 (</s>)"),
                              ([5, 10 ** 6, 1], "id 1 (counted from 0) is 1000000, expected 0 to"),
                              ([5] * 400 + [1], "found 401 ids, expected at most")):
                lines = [{"prompt": "a"}, {"token_ids": ids}]
                outcome = run(self.options(reference, "out", lines))
                with self.subTest(model=reference.model.name, said=said):
                    self.assertEqual(outcome.status, 64, outcome)
                    self.assertEqual(len(outcome.lines(ERROR)), 1, outcome)
                    self.assertIn(f"clips.jsonl:2: token_ids: {said}", outcome.lines(ERROR)[0])
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    main()

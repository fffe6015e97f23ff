#!/usr/bin/python3
"""The names of spans and lanes stand in lib/base/span_names.hpp; the program, the Python tools and
tools/result_files.md have the same ones.

Ends with status 77 (skipped) if Debian's packages for it are not installed.
"""
import ast
import json
import re
import subprocess
import sys
import unittest

try:
    import numpy  # noqa: F401
except ImportError as missing:
    print(f"span_names_test: passed over: {missing}")
    sys.exit(77)

from tool_support import TOOLS

from reelmesh_results import span_names
from reelmesh_results.report import colours, in_text

SOURCE = TOOLS.parent
# Literals in C++ that are equal to the name of a span, and mean something else.
OTHER_MEANINGS = {
    "lib/ops/cuda/norm.cu": {"norm"},  # a kernel
    "lib/job/families/opensora.cpp": {"guidance"},  # a setting
    "lib/job/families/wan.cpp": {"guidance"},
    "lib/forecast/comparison.cpp": {"decode", "weights"},  # columns, and options
    "lib/forecast/correction.cpp": {"decode"},  # ranks in the description of a plan
    "lib/forecast/describe.cpp": {"decode", "encode"},  # roles and memory in the description of a plan
    "lib/inputs/input_file.cpp": {"hash"},  # a fact that is remembered
    "lib/job/machine_file.cpp": {"load", "write"},  # keys of machine files
    "lib/models/wan/layers.cpp": {"norm"},  # of tensors
    "lib/pipeline/tuning.cpp": {"weights"},  # of a layout, in job.h5
    "lib/plan/describe.cpp": {"decode", "weights"},
    "lib/plan/plan_text.cpp": {"decode", "encode", "weights"},
    "lib/plan/roles.cpp": {"decode"},
    "lib/plan/roles.hpp": {"decode"},
    "lib/store/sample_cache.hpp": {"hash"},  # an attribute
    "lib/tensor/purpose.hpp": {"exchange", "weights"},  # purposes of memory
}
SIMULATED = ["denoise_steps"]  # not recorded, but written by plan simulate
NOT_IN_REPORT = ["measure", *SIMULATED]  # `measure` precedes the job's work


def program():
    """Path → text of the C++ files of lib/ and app/ without the header."""
    return {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8")
            for folder in ("lib", "app") for path in sorted((SOURCE / folder).rglob("*"))
            if path.suffix in (".hpp", ".cpp", ".cu", ".cuh") and path != span_names.HEADER}


def scripts():
    """Path → syntax tree of the Python programs that may read a trace."""
    found = {}
    for folder in ("tools", "tests/gpu", "tests/bench"):
        for path in sorted((SOURCE / folder).rglob("*")):
            if path.suffix not in ("", ".py") or not path.is_file():
                continue
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".py" or re.match("#!.*python", text):
                found[str(path.relative_to(SOURCE))] = ast.parse(text)
    return found


def one_of(names):
    """'a, b or c'"""
    return f"{', '.join(names[:-1])} or {names[-1]}"


class Header(unittest.TestCase):
    GOOD = ('inline constexpr std::array<std::string_view, 2> level_names{"off", "stages"};\n'
            'inline constexpr const char* file = "file";\n'
            'inline constexpr SpanKind load{"load", Level::stages, lanes::file, "of weights"};\n')

    def test_is_parsed(self):
        self.assertEqual(span_names.parse(self.GOOD), (
            ("off", "stages"), ("file",), {"load": ("stages", "file", "of weights")}))

    def test_lines_written_otherwise_are_errors(self):
        for old, new in (('"load"', '"loads"'), ("Level::stages", "Level::layers"),
                         ("lanes::file", "lanes::disk"), ("lanes::file", '"file"'),
                         (', "of weights"', ""), (', "of weights"', ',\n    "of weights"'),
                         ('= "file"', '= "disk"'), ("level_names", "levels"),
                         (self.GOOD, self.GOOD + self.GOOD)):
            with self.subTest(new=new), self.assertRaises(ValueError):
                span_names.parse(self.GOOD.replace(old, new))

    def test_levels_contain_the_coarser_ones(self):
        self.assertEqual(span_names.up_to("off"), ())
        self.assertEqual(span_names.up_to("ops"), tuple(span_names.SPANS))
        self.assertIn("load", span_names.up_to("stages"))
        self.assertNotIn("t5_layer", span_names.up_to("stages"))
        self.assertIn("t5_layer", span_names.up_to("layers"))

    def test_an_unknown_name_is_an_error(self):
        self.assertEqual(span_names.names.decode, "decode")
        with self.assertRaises(AttributeError):
            span_names.names.decodes  # noqa: B018


class Program(unittest.TestCase):
    def test_names_are_not_repeated(self):
        found = {}
        for path, text in program().items():
            names = set(re.findall(r'"(\w+)"', text)) & set(span_names.SPANS)
            if names:
                found[path] = names
        self.assertEqual(found, OTHER_MEANINGS)

    def test_kinds_are_made_in_the_header_only(self):
        made = [path for path, text in program().items()
                if re.search(r"SpanKind(\s+\w+)?\s*[({]", text)]
        self.assertEqual(made, [])

    def test_every_span_and_lane_is_used(self):
        scopes = re.findall(r"\b(?:(?:Scope|Operation) \w+|record)\(([^;]*);", "\n".join(program().values()))
        self.assertEqual(set(re.findall(r"\bspans::(\w+)", "\n".join(scopes))),
                         set(span_names.SPANS) - set(SIMULATED))
        self.assertEqual({span.lane for span in span_names.SPANS.values()}, set(span_names.LANES))

    def test_lists_have_all(self):
        text = (SOURCE / "lib/base/span_list.hpp").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"\blanes::(\w+)", text), list(span_names.LANES))
        self.assertEqual(re.findall(r"\bspans::(\w+)", text), list(span_names.SPANS))

    def test_the_closing_report_has_every_stage(self):
        text = program()["lib/pipeline/report.cpp"]
        self.assertEqual(sorted(re.findall(r"\bspans::(\w+)", text) + NOT_IN_REPORT),
                         sorted(span_names.up_to("stages")))


class Page(unittest.TestCase):
    def test_the_help_of_a_tool_lists_the_spans(self):
        self.maxDiff = None
        text = subprocess.run([TOOLS / "reelmesh-trace", "--help"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        listed = re.sub("\n {3,}", " ", text.split("and their lane:\n")[1])  # lines that go on
        found = [re.split(" {2,}", line.strip()) for line in listed.splitlines()]
        self.assertEqual(found, [[name, span.level, span.lane, span.meaning.replace("`", "")]
                                 for name, span in span_names.SPANS.items()])

    def test_lanes(self):
        text = (SOURCE / "tools/result_files.md").read_text(encoding="utf-8")
        lane = re.search(r"^lane +enum +(.*)$", text, re.M)
        self.assertEqual(lane[1], one_of(span_names.LANES))


class Scripts(unittest.TestCase):
    def test_every_span_and_lane_has_a_colour(self):
        self.assertEqual(set(colours.NAMES), set(span_names.SPANS))
        self.assertEqual(list(colours.LANES), list(span_names.LANES))

    def test_colours_of_stages_are_told_apart(self):
        """Those of one job, by a distance that weighs the channels as eyes do."""
        alike = {"encode_image": "encode_video", "denoise_step": "train_step",
                 "denoise_steps": "train_step", "measure_change": "validate"}
        names = {alike.get(name, name) for name in span_names.up_to("stages")}
        self.assertGreater(len(names), 12)
        for one in names:
            for other in names - {one}:
                a, b = ([int(colours.NAMES[name][i:i + 2], 16) for i in (1, 3, 5)]
                        for name in (one, other))
                distance = sum(weight * (x - y) ** 2 for weight, x, y in zip((2, 4, 3), a, b)) ** 0.5
                self.assertGreater(distance, 55, (one, other))

    def test_every_lane_has_a_character_and_a_number(self):
        self.assertEqual(list(in_text.FILL), [*span_names.LANES, "other"])
        schema = (TOOLS / "reelmesh_results/report/schema.json").read_text(encoding="utf-8")
        self.assertIn([*span_names.LANES, "other"], required_in(json.loads(schema)))

    def test_names_exist(self):
        """Also in functions that no test calls."""
        count = 0
        for path, tree in scripts().items():
            imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                        and (node.module or "").endswith("span_names") for alias in node.names}
            for node in ast.walk(tree):
                if (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                        and node.value.id in imported & {"names", "lanes"}):
                    self.assertTrue(hasattr(getattr(span_names, node.value.id), node.attr),
                                    f"{path}:{node.lineno}: {node.value.id}.{node.attr}")
                    count += 1
        self.assertGreater(count, 30)

    def test_names_are_not_repeated(self):
        """Those that are no ordinary words."""
        names = {name for name in span_names.SPANS if "_" in name} | {"handover"}
        for path, tree in scripts().items():
            for node in ast.walk(tree) if not path.endswith("report/colours.py") else ():
                if isinstance(node, ast.Constant):
                    value = node.value
                    text = value.decode("latin1") if isinstance(value, bytes) else value
                    self.assertNotIn(text, names, f"{path}:{node.lineno}")

    def test_lines_that_a_run_on_a_gpu_shows(self):
        text = (SOURCE / "tests/gpu/run").read_text(encoding="utf-8")
        shown = re.search(r"\^\(([\w|]+)\) \+\[0-9\]", text)[1].split("|")
        self.assertLessEqual(set(shown), set(span_names.up_to("stages")))


def required_in(schema):
    """All lists "required" within a schema."""
    if isinstance(schema, list):
        return [found for one in schema for found in required_in(one)]
    if not isinstance(schema, dict):
        return []
    return [value for name, value in schema.items() if name == "required"] + [
        found for one in schema.values() for found in required_in(one)]


if __name__ == "__main__":
    unittest.main()

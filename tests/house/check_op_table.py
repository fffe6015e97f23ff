#!/usr/bin/env python3
"""Checks that each op of lib/ops has a row in the table of tests/support/op_table.hpp, whose parts must have
the bits of the whole: check_op_table.py [SOURCE]

An op is a function that takes or gives tensors, or a class with such functions. Prints one line for each
without a row, and for each name of the table or of NOT_CUT that is no op; exit status 1 if there is any.
"""
import pathlib
import re
import sys

TABLE = "tests/support/op_table.hpp"
# Ops without a row, and why.
NOT_CUT = {
    "LinearForm": "packs weights; Linear multiplies by them, and weight_stream cuts its units",
    "WeightSource": "gives Linear its weights",
    "cpu_attention_work": "Attention on the CPU",
    "Attention::Work": "Attention on one backend",
    "group_statistics": "of the sums over a whole image; compared with group_sums in cuda/norm_test.cpp",
    "channel_factors": "of channels, which are never cut",
    "flag_non_finite": "one answer about all values",
    "FiniteCheck": "one answer about all values",
    "all_finite": "one answer about all values",
    "add_gradient": "gives a gradient to a tape, by add; without a result",
    "shared_by_tokens": "its argument, recorded",
    "record_layer_norm": "records modulated_layer_norm; without a result",
    "record_gate": "records add_gated; without a result",
    "record_head_norm": "records normalise_and_rotate; without a result",
    "record_activation": "records gelu and gelu_tanh; without a result",
}


def declarations(text):
    """Yields the declarations at the scope of namespaces, bodies of functions left out."""
    text = re.sub(r"//[^\n]*|^\s*#[^\n]*", "", text, flags=re.MULTILINE)
    text = re.sub(r"\bnamespace [\w:]* *\{", ";", text)
    declared, depth, opened = "", 0, ""
    for char in text:
        depth -= char == "}"
        if depth <= 0 and char in ";}":
            yield " ".join((declared + opened).split())
            declared, depth, opened = "", 0, ""
        elif depth > 0 or char == "{":
            if re.match(r"\s*(template <[^>]*>\s*)?(class|struct|enum)\b", declared):
                opened += char
            depth += char == "{"
        else:
            declared += char


def ops_of(text):
    """Names of the ops that a header declares."""
    names = set()
    for declared in declarations(text):
        if not re.search(r"\bTensor\b", declared) or declared.startswith(("struct", "enum")):
            continue
        name = re.match(r"class ([\w:]+)", declared) or re.search(r"(\w+)\s*\(", declared)
        if name:
            names.add(name[1])
    return names


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    ops = {}
    for path in sorted((source / "lib/ops").glob("*.hpp")):
        for name in ops_of(path.read_text(encoding="utf-8")):
            ops[name] = path.relative_to(source).as_posix()
    rows = set(re.findall(r'^ *\{"(\w+)", +"', (source / TABLE).read_text(encoding="utf-8"), re.MULTILINE))
    found = [f"{path}: {name} has no row in {TABLE}" for name, path in ops.items()
             if name not in rows and name not in NOT_CUT]
    found += [f"{TABLE}: lib/ops declares no op {name}" for name in sorted(rows - ops.keys())]
    found += [f"{sys.argv[0]}: lib/ops declares no op {name}" for name in sorted(NOT_CUT.keys() - ops.keys())]
    found += [f"{sys.argv[0]}: {name} has a row in {TABLE}" for name in sorted(NOT_CUT.keys() & rows)]
    print("\n".join(found) or f"{len(rows)} ops of lib/ops have rows in {TABLE}, {len(NOT_CUT)} need none")
    return 1 if found or not rows else 0


if __name__ == "__main__":
    sys.exit(main())

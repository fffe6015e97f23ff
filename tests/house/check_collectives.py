#!/usr/bin/env python3
"""Checks that an operation which all ranks of a group must call shows it where it is called:
check_collectives.py [SOURCE]

A declaration in a header of lib/ whose comment says "Collective" must take the group, or a value that has
one (SHOWN_BY), or have a name that says so (NAMES). Prints one line for each that does not; exit status 1
if there is any.
"""
import pathlib
import re
import sys

# Types of arguments and of results' classes that stand for the ranks of a group.
SHOWN_BY = r"comm::Group|\bGroup&|\bSharded\b|Placement\b|DenoiseTask\b|MPI_Comm\b"
# Names: what is agreed, gathered or done together.
NAMES = r"(?:\w+_together|agree\w*|(?:all_)?gather\w*|broadcast\w*|barrier\w*|all_\w+|exchange\w*)$"
# A class whose objects are made for a group: calls on them are as visible as calls on the group.
CLASSES = {"Group", "Exchange", "Attend", "RepeatedCall", "WeightStream"}


def declarations(text):
    """Yields (line number, class, comment, declaration) for each commented declaration of a header."""
    classes, comment, start = [], [], 0
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        line = lines[i].strip()
        opened = re.match(r"(?:class|struct) (\w+)[^;]*\{", line)
        if line.startswith("///"):
            start = start if comment else i + 1
            comment.append(line[3:].strip())
        elif comment and line and not line.startswith("template"):
            declared = [line]
            while not re.search(r"[;{]", declared[-1]) and i + 1 < len(lines):
                i += 1
                declared.append(lines[i].strip())
            yield start, classes[-1] if classes else "", " ".join(comment), " ".join(declared)
            opened = re.match(r"(?:class|struct) (\w+)[^;]*\{", " ".join(declared))
            comment = []
        if opened:
            classes.append(opened[1])
        if line.startswith("};") and classes:
            classes.pop()
        i += 1


def violations(name, text):
    for line, owner, comment, declaration in declarations(text):
        if not re.search(r"(?<![Nn]ot )\b[Cc]ollective\b", comment) or owner in CLASSES:
            continue
        function = re.match(r"[^(]*?([~\w]+|operator\(\))\((.*)", declaration)
        if not function:
            continue
        if re.search(SHOWN_BY, function[2]) or re.match(NAMES, function[1]):
            continue
        yield f"{name}:{line}: {owner + '::' if owner else ''}{function[1]} is collective, which neither " \
              "its name nor its arguments show"


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = [message for path in sorted((source / "lib").rglob("*.hpp"))
             for message in violations(path.relative_to(source).as_posix(), path.read_text())]
    print("\n".join(found) or "all collective operations show it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

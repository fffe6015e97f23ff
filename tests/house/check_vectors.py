#!/usr/bin/env python3
"""Checks that functions with REELMESH_CLONES compute with vectors: check_vectors.py BINARY [MINIMUM]

The compiler gives up vectors without a word where it finds a branch, a trap or errno in a loop. Disassembles
the versions of each function for AVX2 (x86-64-v3) and AVX-512 (x86-64-v4). Of the arithmetic on floating-point
numbers some must be in registers of 32 or 64 bytes; of fused multiply-adds, which make up polynomials, at least
one for each eight on single numbers (what is left of a row is often unrolled). Prints a line for each function
that is not so; exit status 1 if there is any, or fewer functions than MINIMUM.
"""
import re
import subprocess
import sys

HEADER = re.compile(r"^[0-9a-f]+ <(.*\[clone \.arch_x86_64_v[34]\].*)>:$")
ARITHMETIC = re.compile(r"^\s+[0-9a-f]+:\s+v(fn?m(?:add|sub)\d+|add|mul|sub|div|sqrt|max|min)[ps][sd]\s+(.*)")
# On x86 products are computed by oneDNN.
OF_OTHER_PROCESSORS = "ops::plain_product("


class Count:
    """Arithmetic instructions of a function: on single numbers and on vectors, and the multiply-adds of each."""

    def __init__(self):
        self.all, self.multiply_adds = [0, 0], [0, 0]

    def add(self, name, operands):
        is_vector = re.search(r"%[yz]mm", operands) is not None
        self.all[is_vector] += 1
        self.multiply_adds[is_vector] += name.startswith("f")

    def is_plain(self):
        return self.all[1] == 0 or self.multiply_adds[0] > 8 * self.multiply_adds[1]


def functions(disassembly):
    """Name of each version of a function -> Count."""
    found, count = {}, None
    for line in disassembly:
        if line.endswith(">:\n"):
            header = HEADER.match(line)
            count = found.setdefault(header[1], Count()) if header else None
        elif count is not None and (operation := ARITHMETIC.match(line)):
            count.add(*operation.groups())
    return found


def main():
    command = ["objdump", "--disassemble", "--no-show-raw-insn", "--demangle", sys.argv[1]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as objdump:
        found = functions(objdump.stdout)
    if objdump.returncode != 0:
        sys.exit(f"objdump {sys.argv[1]} ended with {objdump.returncode}")
    computing = {name: count for name, count in found.items()
                 if sum(count.all) > 0 and OF_OTHER_PROCESSORS not in name}
    plain = sorted(name for name, count in computing.items() if count.is_plain())
    for name in plain:
        print(f"{name} computes {computing[name].all[0]} numbers one by one, "
              f"{computing[name].multiply_adds[0]} with a multiply-add")
    minimum = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if len(computing) < minimum:
        sys.exit(f"{sys.argv[1]} has {len(computing)} such functions, expected at least {minimum}")
    print(f"{len(computing) - len(plain)} of {len(computing)} functions compute with vectors")
    sys.exit(1 if plain else 0)


if __name__ == "__main__":
    main()

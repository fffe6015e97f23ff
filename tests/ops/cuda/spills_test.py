#!/usr/bin/env python3
"""No kernel spills registers or has arrays in local memory, by ptxas's reports in the build folder
(lib/ptxas.sh), for these GPUs: 80 for 8.0. Usage: spills_test.py BUILD_FOLDER ARCHITECTURE..."""
import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def kernels_in(text):
    """(mangled name, architecture, bytes of stack, spill stores and loads, registers) of each."""
    for part in re.split(r"(?=ptxas info\s*: Compiling entry function)", text):
        entry, stack, registers = (found.search(part) for found in (ENTRY, STACK, REGISTERS))
        if entry and stack and registers:
            yield *entry.groups(), *map(int, stack.groups()), int(registers[1])


def plain(name):
    """The name of a kernel and its type arguments, where c++filt is installed."""
    try:
        return subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return name


def kernels_of(folder, pattern):
    """Those of all objects, each of which must have a report."""
    kernels = []
    for path in sorted(folder.glob(pattern)):
        report = path.with_name(path.name + ".ptxas")
        if not report.exists():
            sys.exit(f"no report of ptxas for {path}")
        kernels += kernels_in(report.read_text())
    return kernels


def main():
    folder, architectures = pathlib.Path(sys.argv[1]), [f"sm_{word}" for word in sys.argv[2:]]
    kernels = kernels_of(folder, "CMakeFiles/*.dir/lib/*/cuda/*.cu.o")
    for architecture in architectures:  # those that only the test compiles
        if not any(kernel[1] == architecture for kernel in kernels):
            kernels += kernels_of(folder, "tests/ops/cuda/CMakeFiles/"
                                          f"kernels_{architecture[3:]}.dir/**/*.cu.o")
    counts = {name: sum(kernel[1] == name for kernel in kernels) for name in architectures}
    if not kernels or len(set(counts.values())) != 1:
        sys.exit(f"kernels in the reports of {folder}: {counts}, expected as many for each")
    spilling = [kernel for kernel in kernels if any(kernel[2:5])]
    for name, architecture, stack, stores, loads, registers in spilling:
        print(f"{plain(name)} for {architecture}: {stack} bytes of stack, {stores} bytes of spill "
              f"stores, {loads} of spill loads, {registers} registers")
    print(f"{len(kernels)} kernels, of which {len(spilling)} use local memory; "
          f"{max(kernel[5] for kernel in kernels)} registers at most")
    sys.exit(1 if spilling else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""No kernel spills registers or has arrays in local memory, by ptxas's reports in the build folder
(lib/ptxas.sh). Usage: spills_test.py BUILD_FOLDER"""
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


def main():
    folder = pathlib.Path(sys.argv[1])
    objects = list(folder.glob("CMakeFiles/*.dir/lib/*/cuda/*.cu.o"))
    reports = {path: path.with_name(path.name + ".ptxas") for path in objects}
    missing = [path.name for path, report in reports.items() if not report.exists()]
    if not objects or missing:
        sys.exit(f"no report of ptxas for {', '.join(missing) or 'any kernel'} in {folder}")
    kernels = [kernel for report in reports.values() for kernel in kernels_in(report.read_text())]
    if not kernels:
        sys.exit(f"no kernel in the {len(reports)} reports of {folder}")
    spilling = [kernel for kernel in kernels if any(kernel[2:5])]
    for name, architecture, stack, stores, loads, registers in spilling:
        print(f"{plain(name)} for {architecture}: {stack} bytes of stack, {stores} bytes of spill "
              f"stores, {loads} of spill loads, {registers} registers")
    print(f"{len(kernels)} kernels, of which {len(spilling)} use local memory; "
          f"{max(kernel[5] for kernel in kernels)} registers at most")
    sys.exit(1 if spilling else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Clocks, power, temperature, use and memory of GPU 0 over time, as nvidia-smi reports them every
half second. Changes no setting of the device.

    tests/gpu/monitor.py FILE              writes rows of CSV, each at once, until it is ended
    tests/gpu/monitor.py FILE FROM TO      a line about the rows between two times (seconds of date
                                           +%s), such as: SM 1755 MHz (1410 to 1980), 512 W …

Without nvidia-smi no rows are written, and nothing is said.
"""
import csv
import os
import statistics
import subprocess
import sys
import time

FIELDS = ["clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu",
          "memory.used"]
# Why clocks are lowered; its former name in older drivers.
REASONS = ["clocks_event_reasons.active", "clocks_throttle_reasons.active"]
BITS = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal slowdown",
        0x40: "hardware thermal slowdown", 0x80: "power brake"}
HEAD = ["time", *FIELDS, "reasons"]


def asked(reasons, *more):
    return subprocess.Popen(
        ["nvidia-smi", "--id=0", "--format=csv,noheader,nounits",
         f"--query-gpu={','.join([*FIELDS, reasons])}", *more[:-1]],
        stdin=subprocess.DEVNULL, stdout=more[-1], stderr=subprocess.STDOUT)


def known_reasons():
    """The name that this driver knows, or None without nvidia-smi."""
    for name in REASONS:
        try:
            child = asked(name, subprocess.PIPE)
        except OSError:
            return None
        child.communicate()
        if child.returncode == 0:
            return name
    return None


def record(path):
    reasons = known_reasons()
    with open(path, "w", buffering=1) as out:
        out.write(",".join(HEAD) + "\n")
        if reasons is None:
            return
        # It writes to a terminal, if there is one, which passes each line on at once.
        try:
            reader, writer = os.openpty()
        except OSError:
            reader, writer = os.pipe()
        child = asked(reasons, "--loop-ms=500", writer)
        os.close(writer)
        try:
            with open(reader, errors="replace") as lines:
                for line in lines:
                    if line.count(",") == len(HEAD) - 2:
                        out.write(f"{time.time():.2f},{line.strip()}\n")
        except OSError:  # how the end of a terminal is reported
            pass
        finally:
            child.kill()
            child.wait()


def number(text):
    try:
        return float(text)
    except ValueError:  # [N/A]
        return None


def summary(path, first, last):
    """A line about the rows of a file between two times, or an empty one."""
    with open(path, newline="") as file:
        rows = [row for row in csv.DictReader(file, skipinitialspace=True)
                if None not in row.values() and first <= float(row["time"]) <= last]

    def values(name, some):
        return [value for row in some if (value := number(row[name])) is not None]

    said = []
    busy = [row for row in rows if (number(row["utilization.gpu"]) or 0) >= 50]
    if clocks := values("clocks.sm", busy):
        said.append(f"SM {statistics.median(clocks):.0f} MHz ({min(clocks):.0f} to "
                    f"{max(clocks):.0f})")
    if power := values("power.draw", busy):
        said.append(f"{statistics.median(power):.0f} W (to {max(power):.0f})")
    if heat := values("temperature.gpu", busy):
        said.append(f"to {max(heat):.0f} °C")
    for bit, name in BITS.items():
        lowered = sum(int(row["reasons"], 0) & bit > 0 for row in busy
                      if row["reasons"].startswith("0x"))
        if lowered:
            said.append(f"{name} {lowered / len(busy):.0%} of the time")
    if memory := values("memory.used", rows):
        said.append(f"GPU memory to {max(memory) / 1024:.2f} GiB")
    return ", ".join(said)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        record(sys.argv[1])
    elif len(sys.argv) == 4:
        if line := summary(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])):
            print(line)
    else:
        sys.exit(__doc__)

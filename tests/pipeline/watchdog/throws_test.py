#!/usr/bin/python3
"""throws_test.py PROGRAM: one rank throws in each stage, in each mode (throws.cpp); the job ends with one
message and the promised status, long before device.timeout (10 s)."""
import subprocess
import sys
import time
import unittest

PROGRAM = sys.argv.pop()
DATA = 65
# The rank that throws has a part in the stage: text, input, denoise, decode.
THROWING = {"phased": (3, 2, 1, 3), "split": (0, 3, 1, 3)}


class ThrowsTest(unittest.TestCase):
    def test_every_stage(self):
        for mode, ranks in THROWING.items():
            for stage, rank in enumerate(ranks):
                with self.subTest(mode=mode, stage=stage):
                    start = time.monotonic()
                    result = subprocess.run(["mpirun", "-n", "4", PROGRAM, mode, str(stage), str(rank)],
                                            capture_output=True, text=True, timeout=60)
                    self.assertLess(time.monotonic() - start, 9)
                    self.assertEqual(result.returncode, DATA, result)
                    told = result.stderr.replace("\0", "")  # ends messages of Open MPI 5's mpirun
                    errors = [line for line in told.splitlines() if "error:" in line]
                    self.assertEqual(errors, [f"reelmesh: error: rank {rank}: a planned failure in "
                                              f"stage {stage}"], result)


if __name__ == "__main__":
    unittest.main()

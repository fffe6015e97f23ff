"""Shared by the scripts that run whole jobs: more ranks than cores, one thread each, as any user."""

import pathlib
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))
import mpi  # noqa: E402

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **mpi.environment()}

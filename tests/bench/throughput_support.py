"""Shared by the scripts that run whole jobs: more ranks than cores, one thread each, as any user."""

import pathlib

MPI = (pathlib.Path(__file__).resolve().parents[1] / "mpi_environment").read_text().splitlines()
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
               **dict(line.split("=", 1) for line in MPI if not line.startswith("#"))}

"""The environment of the tests' MPI jobs for Python: tests/mpi_environment."""
import pathlib


def environment():
    lines = pathlib.Path(__file__).with_name("mpi_environment").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))

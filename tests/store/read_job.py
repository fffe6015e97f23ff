"""Reads job.h5 as written by job_test.cpp, and the clips that it links to."""

import subprocess
import sys

try:
    import h5py
except ImportError as missing:
    sys.exit(f"read_job.py: {missing}; install python3-h5py")

PATH = sys.argv[1]
EXPECTED = {
    "program": b"reelmesh",
    "version": b"0.1.0",
    "git_revision": b"abc1234",
    "options": b"model.path = models/tiny\nsample.steps = 4\n",
    "plan": b"phased, 1 rank",
    "start": b"2026-01-31T12:00:00Z",
    "end": b"2026-01-31T12:34:56Z",
    "status": b"complete",
}

with h5py.File(PATH, "r") as file:
    for name, expected in EXPECTED.items():
        found = file.attrs[name]
        found = found.encode() if isinstance(found, str) else found
        assert found == expected, f"{name}: found {found!r}, expected {expected!r}"
    assert list(file.attrs["hosts"]) == [b"node-1", b"node-02"], file.attrs["hosts"]
    assert set(file.attrs) == {*EXPECTED, "hosts"}, set(file.attrs)
    assert list(file["clips"]) == ["000000", "000001"], list(file["clips"])
    assert file["clips/000001/video"].shape == (3, 4, 6, 3)
    states = [tuple(row) for row in file["states"][()]]
    assert file["states"].dtype.names == ("clip", "state", "reason"), file["states"].dtype
    assert states == [(0, b"complete", b""), (1, b"failed", "NaN in größe".encode())], states
    link = file.get("trace", getlink=True)
    assert (link.filename, link.path) == ("trace.h5", "/"), (link.filename, link.path)

subprocess.run(["h5dump", "-H", PATH], check=True, stdout=subprocess.DEVNULL)

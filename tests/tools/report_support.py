"""What the tests of tools/reelmesh-report share: a small job with known numbers."""
import json
import shutil
import unittest

import h5py
import numpy as np
import results_support as support
from tables import write_table
from tool_support import ToolTest

FFMPEG = shutil.which("ffmpeg")
needs_ffmpeg = unittest.skipUnless(FFMPEG, "ffmpeg is not installed")
# rank, lane, name, clip, step, layer, start, duration, bytes, flops, memory_bytes
SPANS = [(0, "compute", "denoise_step", 0, 0, -1, 0, 100, 80, 1000, 0),
         (0, "compute", "transformer_block", 0, 0, 0, 10, 50, 80, 1000, 0),
         (0, "compute", "product", 0, 0, 0, 20, 20, 0, 1000, 500),
         (0, "exchange", "exchange", 0, 0, 0, 45, 10, 80, 0, 0),
         (0, "file", "write", 0, -1, -1, 120, 30, 0, 0, 0),
         (0, "waiting", "wait", -1, -1, -1, 150, 50, 0, 0, 0),
         (1, "compute", "denoise_step", 0, 0, -1, 0, 90, 240, 0, 0),
         (1, "exchange", "handover", 0, -1, -1, 90, 10, 40, 0, 0),
         (1, "compute", "decode", 0, -1, -1, 100, 100, 0, 4000, 0)]


def trace_of(folder, rows, complete=True, level="ops"):
    """A trace with these rows of SPANS, of as many ranks as they have."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = 1 + max((row[0] for row in rows), default=0)
    with h5py.File(folder / "trace.h5", "w") as file:
        file.attrs.update({"format_version": 2, "level": level, "start": "2026-01-31T12:00:01Z"})
        file.attrs.create("complete", int(complete), dtype="i1")
        encoded = [(row[0], row[1].encode(), row[2].encode(), *row[3:]) for row in rows]
        write_table(file, "spans", np.array(encoded, support.SPAN))
        found = np.zeros(ranks, support.RANK)
        for i in range(ranks):
            found[i] = (i, b"node-a", b"denoise", b"cpu", 1, 9000, 0, 0, 0, b"", 0, 20000, 9500,
                        1e11, 5e10)
        write_table(file, "ranks", found)


class Report(ToolTest):
    tool = "reelmesh-report"

    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def numbers(self, *arguments):
        return json.loads(self.expect(0, self.out, "--json", *arguments))

    def page(self, *arguments):
        self.expect(0, self.out, *arguments)
        return (self.out / "report.html").read_text()

    def job(self, clips=1, rows=SPANS, complete=True, states=None, **attributes):
        """A job whose trace has these spans."""
        requests = [{"prompt": f"prompt {i}", "seed": 42 + i, "frames": 5, "height": 16,
                     "width": 16} for i in range(clips)]
        for i in range(clips):
            if (states or {}).get(i, ("complete",))[0] in ("complete", "preview"):
                support.write_clip(self.out, i, support.moving_square(5, 16, 16, i),
                                   requests[i]["prompt"])
        support.write_index(self.out, requests, states, trace=rows is not None, **attributes)
        if rows is not None:
            trace_of(self.out, rows, complete)

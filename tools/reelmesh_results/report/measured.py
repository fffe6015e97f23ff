"""Reads the trace of a job, if it has one that can be read."""
import contextlib
import dataclasses

from ..hdf5 import Damaged
from ..trace import Trace
from . import memory, timeline, totals


@dataclasses.dataclass
class Measured:
    """All None without a trace."""
    trace: Trace = None
    sums: totals.Totals = None
    extent: totals.Extent = None
    rows: timeline.Rows = None
    series: memory.Series = None


@contextlib.contextmanager
def of(job, over_time):
    """Yields a Measured. over_time: also what is only needed for pictures, rows and series. A
    damaged trace is noted in the job."""
    path = job.folder / "trace.h5"
    with contextlib.ExitStack() as stack:
        found = Measured()
        if path.exists():
            try:
                trace = stack.enter_context(Trace(path))
                extent = totals.extent(trace)
                rows = timeline.Rows(extent, trace) if over_time else None
                series = memory.Series(trace, extent) if over_time else None
                found = Measured(trace, totals.of(trace, rows), extent, rows, series)
            except Damaged as error:
                job.problem(path, error)
        yield found

"""What OUT names on the command line of a tool: the output folder of a job, its job.h5, or one
file of it."""


def is_one_file(out):
    """Whether it is a single clip or trace, and not a job."""
    return out.is_file() and out.name != "job.h5"


def folder_of(out):
    """The output folder of a job, given it or its job.h5."""
    return out if out.is_dir() else out.parent

"""Shared by tests of jobs that are stopped or killed within the denoising of a clip."""

import signal
import subprocess
import time

import h5py

from support import Scratch, command_of, finish, programs_of, send, start


class Interrupted(Scratch):
    """A test of a job that writes to self.output."""

    COMMAND = "run"

    def setUp(self):
        super().setUp()
        self.output = self.folder / "output"

    def saved(self):
        """Clip -> completed steps in its restart file."""
        steps = {}
        for path in sorted((self.output / "restart").glob("[0-9]*.h5")):
            with h5py.File(path) as file:
                steps[int(path.stem)] = int(file.attrs["step"])
        return steps

    def saved_quietly(self):
        try:
            return self.saved()
        except OSError:  # being replaced
            return {}

    def disturb(self, ranks, disturbance, options, when=None, timeout=60):
        """Starts the job, waits until when() holds, and calls disturbance(mpirun, processes) while
        the ranks' processes are suspended, so that a fast job does not go on meanwhile. Then they
        continue, except those that disturbance returns."""
        began = time.monotonic()
        job = start(command_of(options, ranks, self.COMMAND), stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE)
        when = when or (lambda: any(step >= 3 for step in self.saved_quietly().values()))
        suspended = []
        while not (suspended and when()):
            send(signal.SIGCONT, suspended)
            suspended = []
            self.assertIsNone(job.poll(), "the job has ended already")
            self.assertLess(time.monotonic() - began, timeout)
            if when():
                suspended = programs_of(job.pid, ranks)
                send(signal.SIGSTOP, suspended)
                time.sleep(0.02)  # until they stop
            else:
                time.sleep(0.01)
        left = disturbance(job, suspended) or []
        send(signal.SIGCONT, [process for process in suspended if process not in left])
        disturbed = time.monotonic()
        outcome = finish(job, began, timeout)
        outcome.seconds = time.monotonic() - disturbed
        return outcome

// Loaded with LD_PRELOAD: a process that waits sleeps for a moment where it would only let others go first.
// A rank that waits in MPI calls sched_yield all the time (mpi_yield_when_idle of tests/mpi_environment).
// After that call Linux lets it run again only when the others have used their time slices, milliseconds
// after its message has come; after a sleep it runs at once.
#include <time.h>

int sched_yield(void) {
  const struct timespec moment = {0, 20000};  // 20 us
  nanosleep(&moment, NULL);
  return 0;
}

#include "pipeline/run.hpp"

#include <csignal>

#include "base/log.hpp"
#include "comm/group.hpp"
#include "commands.hpp"
#include "failure.hpp"
#include "options.hpp"
#include "pipeline/host_memory.hpp"
#include "program.hpp"

namespace reelmesh::app {

Status run_command(int argc, const char* const* argv) {
  // A reader of standard error that ends (mpirun ... 2>&1 | head) must not end the job.
  std::signal(SIGPIPE, SIG_IGN);
  const Job job = parse_run(argc, argv);  // before MPI, so that a wrong option is reported at once
  pipeline::require_addresses_to_start();
  const comm::Environment mpi;
  const comm::Group world = comm::Group::world();
  log::set_rank(world.rank());
  try {
    return pipeline::run(world, job, program_info());
  } catch (...) {
    if (world.size() == 1) throw;
    // Other ranks may wait for this one in a collective, so MPI_Finalize could hang.
    const Failure failure = current_failure();
    wait_for_lower_ranks(world.rank());
    log::say_here(log::Level::error, failure.message, failure.rank.value_or(world.rank()));
    comm::abort_all(failure.status);
  }
}

}  // namespace reelmesh::app

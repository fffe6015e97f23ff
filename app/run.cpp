#include "pipeline/run.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include "base/log.hpp"
#include "base/stop.hpp"
#include "base/system.hpp"
#include "comm/group.hpp"
#include "comm/watchdog.hpp"
#include "commands.hpp"
#include "failure.hpp"
#include "options.hpp"
#include "pipeline/host_memory.hpp"
#include "program.hpp"

namespace reelmesh::app {

namespace {

// Seconds until the job is to stop by itself: --max-time, or what Slurm leaves it less a margin for
// saving.
std::optional<double> time_limit(const Job& job) {
  if (job.max_time) return std::isfinite(*job.max_time) ? job.max_time : std::nullopt;
  const char* end = std::getenv("SLURM_JOB_END_TIME");  // seconds since 1970
  if (end == nullptr) return std::nullopt;
  const double left = std::strtod(end, nullptr) - static_cast<double>(std::time(nullptr));
  if (!(left > 0)) return std::nullopt;
  return left - std::min(left / 10, 60.0);
}

}  // namespace

Status run_command(int argc, const char* const* argv) {
  // A reader of standard error that ends (mpirun ... 2>&1 | head) must not end the job.
  std::signal(SIGPIPE, SIG_IGN);
  Job job = parse_run(argc, argv);  // before MPI, so that a wrong option is reported at once
  job.source.command = command_line();
  if (job.restart.on_signal) stop::catch_signals();
  pipeline::require_addresses_to_start();
  std::optional<comm::Watchdog> watchdog;  // watches MPI_Finalize, too
  const comm::Environment mpi;
  const comm::Group world = comm::Group::world();
  log::set_rank(world.rank());
  watchdog.emplace(
      world, comm::WatchdogSettings{.timeout = job.device_timeout, .time_limit = time_limit(job)});
  try {
    return pipeline::run(world, job, program_info(), &*watchdog);
  } catch (...) {
    if (world.size() == 1) throw;
    // Other ranks may wait for this one in a collective, so MPI_Finalize could hang.
    const Failure failure = current_failure();
    wait_for_other_reports(failure, world.rank(), *watchdog);
    log::say_here(log::Level::error, failure.message, failure.rank.value_or(world.rank()));
    comm::abort_all(failure.status);
  }
}

}  // namespace reelmesh::app

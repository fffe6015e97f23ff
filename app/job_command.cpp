#include "job_command.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>

#include "base/log.hpp"
#include "base/stop.hpp"
#include "base/system.hpp"
#include "failure.hpp"
#include "job/host_memory.hpp"
#include "job/same_job.hpp"
#include "job/shared_requests.hpp"
#include "program.hpp"

namespace reelmesh::app {

namespace {

// Seconds until the job is to stop by itself: --max-time, or what Slurm leaves it less a margin for
// saving. Called when the program starts.
std::optional<double> time_limit(const Job& job) {
  if (job.max_time) return std::isfinite(*job.max_time) ? job.max_time : std::nullopt;
  const char* end = std::getenv("SLURM_JOB_END_TIME");  // seconds since 1970
  if (end == nullptr) return std::nullopt;
  const double left = std::strtod(end, nullptr) - static_cast<double>(std::time(nullptr));
  if (!(left > 0)) return std::nullopt;
  return left - std::min(left / 10, 60.0);
}

// MPI_Init to MPI_Finalize. watchdog, complete: set here; they outlive MPI.
Status run_on_all(Job& job, const DoJob& work, std::unique_ptr<comm::Watchdog>& watchdog,
                  std::optional<stop::UnsavedWork>& complete) {
  const comm::Environment mpi;
  const comm::Group world = comm::Group::world();
  log::set_rank(LaunchedRank{world.rank()});
  watchdog = std::make_unique<comm::Watchdog>(
      world, comm::WatchdogSettings{.timeout = job.device_timeout});
  try {
    require_same_job_together(world, job, program_info().text());
    if (!job.train) share_requests_together(world, job);
    const Status status = work(world, job, program_info(), watchdog.get());
    complete.emplace();  // a stop that comes now must not change the status
    return status;
  } catch (...) {
    if (world.size() == 1) throw;
    // Other ranks may wait for this one in a collective, so MPI_Finalize could hang.
    const Failure failure = current_failure();
    wait_for_other_reports(failure, *watchdog);
    log::say_here(failure_level(failure), failure.message, failure.rank.value_or(log::rank()));
    comm::abort_all(failure.status);
  }
}

}  // namespace

Status parse_and_do(const ParseJob& parse, const DoJob& work) {
  // A reader of standard error that ends (mpirun ... 2>&1 | head) must not end the job.
  std::signal(SIGPIPE, SIG_IGN);
  stop::catch_signals();  // also while prompts are read
  // Before MPI, so that a wrong option is reported at once.
  Job job = parse([](const Job& options) {
    if (!options.restart.on_signal) stop::release_signals();
    if (const auto seconds = time_limit(options)) stop::limit_time(*seconds);
  });
  job.source.command = command_line();
  require_memory_to_start();
  std::unique_ptr<comm::Watchdog> watchdog;  // watches MPI_Finalize, too
  std::optional<stop::UnsavedWork> complete;
  const Status status = run_on_all(job, work, watchdog, complete);
  if (watchdog) {
    watchdog->end(true);
    // Its connection ends with this process, for which rank 0 waits.
    (void)watchdog.release();
  }
  return status;
}

}  // namespace reelmesh::app

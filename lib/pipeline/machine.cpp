#include "pipeline/machine.hpp"

#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/log.hpp"

namespace reelmesh::pipeline {
namespace {

// Of mpirun's daemon, which starts the ranks and is not bound itself: what the job may use here.
int cores_of_launcher() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(getppid(), sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

// mpirun binds each rank to one core unless told otherwise; who starts ranks in another way has
// chosen their cores.
void warn_of_idle_cores(const Machine& machine) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return;
  const int all = cores_of_launcher();
  const int used = machine.host_ranks * machine.cores / machine.sharing;
  if (machine.cores >= all || 2 * used > all) return;
  log::warning(
      "{} of the {} cores of {} are used, for each rank is bound to {}; mpirun --bind-to none or "
      "--map-by ppr:{}:node:pe={} uses them all",
      used, all, machine.host, machine.cores, machine.host_ranks, all / machine.host_ranks);
}

}  // namespace

Machine find_machine(const comm::Group& world) {
  Machine machine;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  machine.host = name.data();
  machine.host_cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));

  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::string mask;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    machine.cores = std::max(1, CPU_COUNT(&cores));
    mask.assign(reinterpret_cast<const char*>(&cores), sizeof cores);
  } else {
    machine.cores = machine.host_cores;
  }
  const comm::Group host = world.on_this_host();
  machine.host_ranks = host.size();
  const auto masks = host.all_gather(mask);
  machine.sharing = static_cast<int>(std::count(masks.begin(), masks.end(), mask));
  return machine;
}

int set_threads(const Machine& machine, const std::optional<int>& asked) {
  const char* variable = std::getenv("OMP_NUM_THREADS");
  int threads = std::max(1, machine.cores / machine.sharing);
  if (variable != nullptr && std::atoi(variable) > 0) threads = std::atoi(variable);
  if (asked) threads = *asked;
  omp_set_num_threads(threads);
  warn_of_idle_cores(machine);
  return threads;
}

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace reelmesh::pipeline

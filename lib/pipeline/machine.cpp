#include "pipeline/machine.hpp"

#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/log.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"
#include "ops/linear.hpp"

namespace reelmesh::pipeline {
namespace {

// Cores that the job may use on this host: the affinity of mpirun's daemon, which starts the ranks
// and is not bound itself. 0 if unknown.
int cores_of_launcher() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(getppid(), sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

// Only under mpirun, which binds each rank to one core by default; other launchers leave the choice
// of cores to the user.
void warn_of_idle_cores(const Machine& machine) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return;
  const int all = cores_of_launcher();
  const int used = machine.host_ranks * machine.cores / machine.sharing;
  if (machine.cores >= all || 2 * used > all) return;
  log::warning(
      "only {} of the {} cores of {} are used, because each rank is bound to {}; mpirun --bind-to "
      "none or --map-by ppr:{}:node:pe={} uses all",
      used, all, machine.host, machine.cores, machine.host_ranks, all / machine.host_ranks);
}

}  // namespace

Machine find_machine(const comm::Group& world) {
  Machine machine;
  machine.host = host_name();
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

Device find_device(const comm::Group& world, Backend backend) {
  const Device device = device_of_rank(backend, world.on_this_host().rank());
  const double all = world.min(device.is_cuda() ? 1.0 : 0.0);
  if (device.is_cuda() && all == 0) {
    log::warning("this rank has {}, but some ranks have no GPU: all ranks use the CPU",
                 to_string(device));
    return {};
  }
  return device;
}

std::vector<std::int64_t> free_memory_of_ranks(const comm::Group& world, Device device) {
  if (!device.is_cuda()) return {};
  const comm::Group host = world.on_this_host();
  const std::int64_t unused = unused_device_memory(device);
  const std::string mine = bus_of(device);
  // Also a barrier: no rank of the host allocates before all have read the free memory.
  const std::vector<std::string> all = host.all_gather(mine);
  const auto sharing = std::max<std::int64_t>(1, std::count(all.begin(), all.end(), mine));
  std::vector<std::int64_t> limits;
  for (const std::string& bytes : world.all_gather(std::to_string(unused / sharing))) {
    limits.push_back(std::stoll(bytes));
  }
  return limits;
}

std::vector<int> nodes_of(const comm::Group& world) {
  // A node is identified by the lowest of its ranks.
  const std::int64_t first = -world.on_this_host().max(std::int64_t{-world.rank()});
  std::vector<int> nodes;
  for (const std::string& node : world.all_gather(std::to_string(first))) {
    nodes.push_back(std::stoi(node));
  }
  return nodes;
}

std::vector<double> measure_speeds(const comm::Group& world, DType dtype, Device device,
                                   const Numerics& numerics) {
  constexpr std::int64_t channels = 1024, min_tokens = 512, max_tokens = 131072;
  constexpr std::int64_t quarter_second = 250'000'000, millisecond = 1'000'000;
  const ops::Linear product(Tensor::zeros({channels, channels}, dtype, device), {}, numerics);
  Tensor x;
  const auto timed = [&] {
    const std::int64_t before = trace::now_ns();
    product(x);
    synchronize(device);
    return std::max<std::int64_t>(1, trace::now_ns() - before);
  };
  // So large that a GPU's time is that of the product, not of its launch.
  std::int64_t tokens = min_tokens;
  for (;; tokens *= 4) {
    x = Tensor::zeros({tokens, channels}, dtype, device);
    timed();  // warm-up: starts threads and touches memory
    if (!device.is_cuda() || 4 * tokens > max_tokens || timed() >= millisecond) break;
  }
  world.barrier();
  const std::int64_t start = trace::now_ns();
  std::int64_t best = quarter_second;
  while (trace::now_ns() - start < quarter_second) best = std::min(best, timed());
  const double mine = static_cast<double>(tokens) / static_cast<double>(best);
  const double relative = std::max(1.0, std::round(16 * mine / world.max(mine))) / 16;
  std::vector<double> speeds;
  for (const std::string& speed : world.all_gather(fmt::format("{}", relative))) {
    speeds.push_back(std::stod(speed));
  }
  return speeds;
}

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace reelmesh::pipeline

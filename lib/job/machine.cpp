#include "job/machine.hpp"

#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/system.hpp"
#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "ops/linear.hpp"
#include "ops/parallel.hpp"
#include "ops/products.hpp"
#include "tensor/gpus.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
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

constexpr std::int64_t millisecond = 1'000'000;

int multiprocessors_of_ranks = 0;

// The shortest time of work(), in ns: of calls within `limit` ns, at least one, after a first one
// that starts threads and touches memory.
template <class F>
std::int64_t shortest(std::int64_t limit, F&& work) {
  work();
  const std::int64_t start = trace::now_ns();
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t before = start; before - start < limit;) {
    work();
    const std::int64_t now = trace::now_ns();
    best = std::min(best, std::max<std::int64_t>(now - before, 1));
    before = now;
  }
  return best;
}

// Of products with a weight of 1024 × 1024, measured for `limit` ns while all ranks measure.
// Collective.
double product_flops_per_s(const comm::Group& world, DType dtype, Device device,
                           const Numerics& numerics, std::int64_t limit) {
  constexpr std::int64_t channels = 1024, min_tokens = 512, max_tokens = 131072;
  // Not zeros, with which a GPU needs less power and so has a higher clock.
  std::vector<float> values(static_cast<std::size_t>(channels * channels));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * 7919 % 1009) / 1009.0F - 0.5F;
  }
  const Tensor weight =
      Tensor::of(std::span<const float>(values), {channels, channels}).to(dtype).on(device);
  const ops::Linear product(weight, {}, numerics);
  Tensor x;
  const auto multiply = [&] {
    product(x);
    synchronize(device);
  };
  // So many that a GPU's time is that of the product, not of its launch. On CPUs the same number,
  // so that equal ranks measure the same.
  std::int64_t tokens = min_tokens;
  for (;; tokens *= 4) {
    x = Tensor::empty({tokens, channels}, dtype, device);
    for (std::int64_t row = 0; row < tokens; row += min_tokens) {
      x.rows(row, min_tokens).copy_from(weight.rows(0, min_tokens));
    }
    if (!device.is_cuda() || 4 * tokens > max_tokens) break;
    if (shortest(0, multiply) >= millisecond) break;
  }
  world.barrier();
  const auto flops = static_cast<double>(2 * tokens * channels * channels);
  return 1e9 * flops / static_cast<double>(shortest(limit, multiply));
}

double copied_bytes_per_s(Device device) {
  const std::int64_t bytes = std::int64_t{device.is_cuda() ? 128 : 32} << 20;
  std::int64_t time = 0;
  if (device.is_cuda()) {
    const Tensor from = Tensor::zeros({bytes}, DType::uint8, device);
    Tensor into = Tensor::empty({bytes}, DType::uint8, device);
    time = shortest(30 * millisecond, [&] {
      into.copy_from(from);
      synchronize(device);
    });
  } else {
    constexpr std::int64_t chunk = 1 << 20;
    const std::vector<std::byte> from(static_cast<std::size_t>(bytes));
    std::vector<std::byte> into(from.size());
    time = shortest(30 * millisecond, [&] {
      ops::parallel_for(bytes / chunk, 1, [&](std::int64_t i) {
        std::memcpy(into.data() + i * chunk, from.data() + i * chunk, chunk);
      });
    });
  }
  return 2e9 * static_cast<double>(bytes) / static_cast<double>(time);
}

}  // namespace

Machine find_machine(const comm::Group& world) {
  Machine machine;
  machine.host = host_name();
  machine.host_cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));

  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    machine.cores = std::max(1, CPU_COUNT(&cores));
  } else {
    machine.cores = machine.host_cores;
  }
  const comm::Group host = world.on_this_host();
  machine.host_ranks = host.size();
  const std::vector<cpu_set_t> masks = comm::all_gather_value(host, cores);
  machine.sharing = static_cast<int>(std::ranges::count_if(
      masks, [&](const cpu_set_t& mask) { return CPU_EQUAL(&mask, &cores) != 0; }));
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
  Device device = device_of_rank(backend, world.on_this_host().rank());
  const double all = world.min(device.is_cuda() ? 1.0 : 0.0);
  if (device.is_cuda() && all == 0) {
    log::warning("this rank has {}, but some ranks have no GPU: all ranks use the CPU",
                 to_string(device));
    device = {};
  }
  comm::run_collectively(world, [&] { require_kernels(device); });
  multiprocessors_of_ranks = static_cast<int>(world.max(std::int64_t{multiprocessors(device)}));
  return device;
}

void warn_of_float32(const Job& job, bool on_gpu) {
  if (!on_gpu || job.dtype != DType::float32 || job.numerics.tf32 || job.source.chose_dtype) return;
  const bool of_file = std::ranges::find(job.source.given, std::string_view("numerics.dtype"),
                                         [](const auto& option) -> std::string_view {
                                           return option.first;
                                         }) != job.source.given.end();
  log::warning(
      "numerics.dtype = float32, {}, on GPUs: bfloat16 is computed by tensor cores, many times as "
      "fast, and needs half the memory, with other bits; --numerics.dtype says which one is meant",
      of_file ? "from the job file" : "the default");
}

int found_multiprocessors() { return multiprocessors_of_ranks; }

void choose_products(const Job& job) {
  require(
      job.products != Products::bfloat16 || ops::has_bfloat16_products(), Status::unavailable,
      "numerics.products = bfloat16 needs AVX-512, which the processor of {} lacks; use auto or "
      "float32",
      host_name());
  ops::choose_products(job.products);
}

namespace {

void warn_of_plain_code(const comm::Group& world) {
  const std::vector<std::int64_t> lacking =
      comm::all_gather_value(world, std::int64_t{ops::lacks_avx2() ? 1 : 0});
  const auto first = std::ranges::find(lacking, 1);
  if (first == lacking.end()) return;
  log::warning(
      "rank {} computes without AVX2 and takes several times as long: its processor has none, or "
      "ONEDNN_MAX_CPU_ISA is set",
      first - lacking.begin());
}

}  // namespace

void agree_on_products(const comm::Group& world, const Job& job) {
  warn_of_plain_code(world);
  comm::run_collectively(world, [&] { choose_products(job); });
  const std::vector<std::string> kinds = world.all_gather(std::string(ops::bfloat16_products()));
  const auto other =
      std::ranges::find_if(kinds, [&](const std::string& kind) { return kind != kinds.front(); });
  if (other == kinds.end()) return;
  if (job.dtype == DType::bfloat16) {
    log::warning(
        "the processors differ: rank 0 would multiply in {}, rank {} in {}; all ranks multiply in "
        "float32",
        kinds.front(), other - kinds.begin(), *other);
  }
  ops::choose_products(Products::float32);
}

std::vector<std::int64_t> free_memory_of_ranks(const comm::Group& world, Device device) {
  if (!device.is_cuda()) return {};
  const comm::Group host = world.on_this_host();
  const std::int64_t unused = unused_device_memory(device);
  const std::string mine = pci_bus(device);
  // Also a barrier: no rank of the host allocates before all have read the free memory.
  const std::vector<std::string> all = host.all_gather(mine);
  const auto sharing = std::max<std::int64_t>(1, std::count(all.begin(), all.end(), mine));
  return comm::all_gather_value(world, unused / sharing);
}

std::vector<int> gather_nodes(const comm::Group& world) {
  // A node is identified by the lowest of its ranks.
  const std::int64_t first = -world.on_this_host().max(std::int64_t{-world.rank()});
  return comm::all_gather_value(world, static_cast<int>(first));
}

std::vector<double> measure_speeds(const comm::Group& world, DType dtype, Device device,
                                   const Numerics& numerics) {
  const double mine = product_flops_per_s(world, dtype, device, numerics, 250 * millisecond);
  const double relative = std::max(1.0, std::round(16 * mine / world.max(mine))) / 16;
  return comm::all_gather_value(world, relative);
}

Peaks measure_peaks(const comm::Group& world, DType dtype, Device device,
                    const Numerics& numerics) {
  const PurposeScope purpose(Purpose::workspace);
  // They are not work of the job.
  trace::Recorder& recorder = trace::recorder();
  const trace::Level level = std::exchange(recorder.level, trace::Level::off);
  const std::int64_t flops = recorder.flops, memory_bytes = recorder.memory_bytes;
  Peaks peaks;
  peaks.flops_per_s = product_flops_per_s(world, dtype, device, numerics, 30 * millisecond);
  world.barrier();
  peaks.bytes_per_s = copied_bytes_per_s(device);
  forget_memory_peaks();
  std::ofstream("/proc/self/clear_refs") << 5;  // sets VmHWM back; without it, peaks are too large
  recorder.level = level;
  recorder.flops = flops;
  recorder.memory_bytes = memory_bytes;
  return peaks;
}

std::int64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace reelmesh

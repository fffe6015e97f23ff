#include "forecast/batch_system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include "base/number.hpp"

namespace reelmesh {
namespace {

// A whole number above 0 at the start of a variable: "8" of "8(x2)", as Slurm writes equal counts.
std::optional<std::int64_t> positive(const char* text) {
  if (text == nullptr) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), number);
  if (error != std::errc() || number <= 0) return std::nullopt;
  return number;
}

std::optional<int> count(const char* text) {
  const auto number = positive(text);
  if (!number || *number > 65536) return std::nullopt;
  return static_cast<int>(*number);
}

}  // namespace

Allocation find_allocation(const Variables& variables, double now) {
  Allocation found;
  if (const char* job = variables("SLURM_JOB_ID")) {
    found.source = fmt::format("Slurm job {}", job);
    found.ranks = count(variables("SLURM_NTASKS"));
    found.ranks_per_node = count(variables("SLURM_NTASKS_PER_NODE"));
    if (const auto nodes = count(variables("SLURM_JOB_NUM_NODES"));
        nodes && found.ranks && !found.ranks_per_node) {
      found.ranks_per_node = (*found.ranks + *nodes - 1) / *nodes;
    }
    found.threads = count(variables("SLURM_CPUS_PER_TASK"));
    constexpr double mebibyte = 1 << 20;
    if (const auto memory = positive(variables("SLURM_MEM_PER_NODE"))) {
      found.node_bytes = to_integer(static_cast<double>(*memory) * mebibyte);
    }
    if (const auto end = positive(variables("SLURM_JOB_END_TIME"))) {
      found.seconds_left = static_cast<double>(*end) - now;
    }
  } else if (const auto ranks = count(variables("OMPI_COMM_WORLD_SIZE"))) {
    found.source = "mpirun";
    found.ranks = ranks;
    found.ranks_per_node = count(variables("OMPI_COMM_WORLD_LOCAL_SIZE"));
  }
  return found;
}

std::string sbatch_line(const JobPlan& planned, const std::optional<Prediction>& prediction) {
  const Plan& plan = planned.plan;
  std::map<int, int> ranks;
  std::map<int, std::int64_t> bytes;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const int node = plan.node[static_cast<std::size_t>(rank)];
    ++ranks[node];
    bytes[node] += plan.memory.peak(rank);
  }
  const auto largest = [](const auto& of_nodes) {
    return std::ranges::max_element(of_nodes, {}, [](const auto& node) { return node.second; })
        ->second;
  };
  const int of_node = largest(ranks);
  std::string line = fmt::format("sbatch --nodes={} --ntasks-per-node={} --cpus-per-task={}",
                                 ranks.size(), of_node, plan.memory.threads);
  if (plan.ranks != of_node * std::ssize(ranks)) line += fmt::format(" --ntasks={}", plan.ranks);
  if (planned.on_gpu) {
    line += fmt::format(" --gpus-per-node={}", of_node);
  } else {
    constexpr double gibibyte = 1 << 30, spare = 1.1;
    line += fmt::format(" --mem={:.0f}G",
                        std::ceil(spare * static_cast<double>(largest(bytes)) / gibibyte));
  }
  if (prediction) {
    constexpr double margin = 300;
    constexpr double longest = 1e9;  // minutes: Slurm has 32 bits for them
    const double minutes = std::ceil((prediction->high + margin) / 60);
    const std::int64_t whole = to_integer(minutes);
    line += minutes < longest ? fmt::format(" --time={:02}:{:02}:00", whole / 60, whole % 60)
                              : " --time=UNLIMITED";
  }
  return fmt::format("{} jobs/{}.sbatch", line, planned.train ? "train" : planned.family->name());
}

}  // namespace reelmesh

#include "forecast/batch_system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include "base/number.hpp"
#include "job/machine_file.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

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

// In a shell, quoted where it has to be.
std::string shell_word(const std::string& text) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@%+-";
  if (!text.empty() && text.find_first_not_of(plain) == text.npos) return text;
  const bool has_lines = text.find('\n') != text.npos;
  std::string quoted = has_lines ? "$'" : "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += has_lines ? "\\'" : "'\\''";
    } else if (has_lines && (c == '\n' || c == '\\')) {
      quoted += c == '\n' ? "\\n" : "\\\\";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

// The variable of the scripts that gives this option; null: none.
const char* variable_of(std::string_view option) {
  if (option == "config") return "CONFIG";
  if (option == "model.path") return "MODEL";
  if (option == "output.path") return "OUTPUT";
  if (option == "output.if-exists") return "IF_EXISTS";
  if (option == "data.path") return "DATA";
  return nullptr;
}

// Pages of weights that are read, which a node with GPUs has beside what its ranks take.
std::int64_t bytes_while_loading(const MemoryPlan& memory) {
  std::int64_t largest_part = 0;
  for (const RankMemory& rank : memory.ranks) {
    largest_part = std::max({largest_part, rank.text.weights + rank.text_on_host,
                             rank.denoise.weights, rank.decode.weights});
  }
  return largest_part;
}

std::string resources(const JobPlan& planned, const std::optional<Prediction>& prediction) {
  const Plan& plan = planned.plan;
  std::map<int, int> ranks;
  std::map<int, std::int64_t> bytes;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const int node = plan.node[static_cast<std::size_t>(rank)];
    ++ranks[node];
    // More for a GPU's driver and libraries than is planned: too little would end the job.
    constexpr std::int64_t min_with_gpu = std::int64_t{2} << 30;
    bytes[node] += planned.on_gpu ? std::max(plan.memory.host_peak(rank), min_with_gpu)
                                  : plan.memory.peak(rank);
  }
  const auto largest = [](const auto& of_nodes) {
    return std::ranges::max_element(of_nodes, {}, [](const auto& node) { return node.second; })
        ->second;
  };
  const int of_node = largest(ranks);
  const MachineTimes* machine = planned.predicted_by.machine.get();
  const int cores = planned.on_gpu && machine != nullptr
                        ? std::max(plan.memory.threads, machine->cores / of_node)
                        : plan.memory.threads;
  std::string text = fmt::format(" --nodes={} --ntasks-per-node={} --cpus-per-task={}",
                                 ranks.size(), of_node, cores);
  if (plan.ranks != of_node * std::ssize(ranks)) text += fmt::format(" --ntasks={}", plan.ranks);
  if (planned.on_gpu) text += fmt::format(" --gpus-per-node={}", of_node);
  constexpr double gibibyte = 1 << 30, spare = 1.1;
  const std::int64_t of_largest_node =
      largest(bytes) + (planned.on_gpu ? bytes_while_loading(plan.memory) : 0);
  text += fmt::format(" --mem={:.0f}G",
                      std::ceil(spare * static_cast<double>(of_largest_node) / gibibyte));
  if (prediction) {
    constexpr double margin = 300;
    constexpr double longest = 1e9;  // minutes: Slurm has 32 bits for them
    const double minutes = std::ceil((prediction->high + margin) / 60);
    const std::int64_t whole = to_integer(minutes);
    text += minutes < longest ? fmt::format(" --time={:02}:{:02}:00", whole / 60, whole % 60)
                              : " --time=UNLIMITED";
  }
  return text;
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

Installation find_installation() {
  const std::vector<fs::path> folders = shared_folders("jobs");
  std::error_code ignored;
  if (fs::is_directory(folders.front(), ignored)) return {folders.front(), {}};
  return {folders.back(), fs::read_symlink("/proc/self/exe", ignored)};
}

std::string submission(const Job& job, const JobPlan& planned,
                       const std::optional<Prediction>& prediction, const std::vector<Given>& given,
                       const Installation& installation) {
  std::map<std::string, std::string> variables{
      {"CONFIG", "none"},
      {"MODEL", job.model.root.string()},
      {"OUTPUT", job.output.empty() ? "results" : job.output.string()}};
  if (!installation.program.empty()) variables["REELMESH"] = installation.program.string();
  if (job.if_exists == IfExists::replace) variables["IF_EXISTS"] = "replace";
  std::vector<std::string> options;
  for (const Given& option : given) {
    const char* variable = variable_of(option.name);
    const bool is_another_path = option.name == "data.path" && variables.contains("DATA");
    if (variable != nullptr && !is_another_path) {
      variables[variable] = option.value;
    } else {
      options.insert(options.end(), {"--" + option.name, option.value});
    }
  }
  std::string line = "env -C " + shell_word(fs::current_path().string());
  for (const auto& [name, value] : variables) {
    line += fmt::format(" {}={}", name, shell_word(value));
  }
  line += " sbatch" + resources(planned, prediction);
  const fs::path script =
      installation.scripts /
      fmt::format("{}.sbatch", planned.train ? "train" : planned.family->name());
  line += " " + shell_word(script.string());
  for (const std::string& word : options) line += " " + shell_word(word);
  return line;
}

}  // namespace reelmesh

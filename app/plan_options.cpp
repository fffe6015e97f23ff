#include "plan_options.hpp"

#include <algorithm>
#include <array>
#include <boost/program_options/value_semantic.hpp>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "draft.hpp"
#include "job/values.hpp"
#include "prompts.hpp"

namespace reelmesh::app {
namespace po = boost::program_options;
namespace {

// Options of plan before it had commands beside it.
void refuse_former_options(int argc, const char* const* argv, const std::set<std::string>& known) {
  constexpr std::array<std::pair<std::string_view, const char*>, 6> former{
      {{"--compare", "reelmesh plan compare"},
       {"--simulate", "reelmesh plan simulate OUT"},
       {"--mtbf", "reelmesh plan simulate OUT --mtbf TIME"},
       {"--requeue", "reelmesh plan simulate OUT --requeue TIME"},
       {"--calibrate", "reelmesh plan calibrate FILE"},
       {"--trace", "reelmesh plan correct OUT"}}};
  for (int i = 1; i < argc; ++i) {
    const std::string_view given = argv[i], word = given.substr(0, given.find('='));
    const auto* found = std::ranges::find(former, word, &decltype(former)::value_type::first);
    const bool is_known = found == former.end() || known.contains(std::string(word.substr(2)));
    require(is_known, Status::usage, "unknown option {}, expected {}", word,
            is_known ? "" : found->second);
  }
}

// "4", or "1,2,4,8" in increasing order.
std::vector<int> parse_rank_counts(const Given& given) {
  std::vector<int> counts;
  std::istringstream words(given.value);
  for (std::string word; std::getline(words, word, ',');) {
    counts.push_back(static_cast<int>(parse_integer(word, given.where, 1, 65536)));
    require(counts.size() == 1 || counts.back() > counts[counts.size() - 2], Status::usage,
            "{}: found '{}', expected increasing numbers of ranks", given.where, given.value);
  }
  require(!counts.empty() && !given.value.ends_with(','), Status::usage,
          "{}: found '{}', expected numbers of ranks such as 4 or 1,2,4,8", given.where,
          given.value);
  return counts;
}

constexpr std::array planned_names{"ranks", "ranks-per-node", "device-memory", "preset"};

// model.path becomes a folder that only this plan has.
void set_preset(PlannedOptions& options, std::vector<Given>& of_job, const Given& preset) {
  for (const Given& given : of_job) {
    require(given.name != "model.path", Status::usage, "{} and {} are given, expected one of them",
            preset.where, given.where);
  }
  options.preset = std::make_shared<const PresetFolder>(preset.value);
  of_job.push_back({"model.path", options.preset->path().string(), preset.where});
}

}  // namespace

std::filesystem::path only_operand(const CommandLine& line, const std::string& expected) {
  require(line.operands.size() == 1, Status::usage, "found {} arguments, expected {}",
          line.operands.size(), expected);
  return parse_path(line.operands.front(), expected);
}

PlannedWords parse_planned(int argc, const char* const* argv, const Allocation& allocation,
                           std::span<const char* const> own, const std::string& operand,
                           const std::string& without_ranks) {
  po::options_description known = known_job_options(JobKind::any);
  known.add_options()("json", po::bool_switch());
  std::set<std::string> of_command(planned_names.begin(), planned_names.end());
  of_command.insert(own.begin(), own.end());
  for (const std::string& name : of_command) {
    known.add_options()(name.c_str(), po::value<std::string>());
  }
  of_command.insert("json");
  refuse_former_options(argc, argv, of_command);
  CommandLine line = read_command_line(argc, argv, known);
  PlannedWords words;
  if (!operand.empty()) {
    words.operand = only_operand(line, operand).string();
    line.operands.clear();
  }
  std::vector<Given> of_job;
  for (Given& given : line.options) {
    if (!of_command.contains(given.name)) {
      of_job.push_back(std::move(given));
      continue;
    }
    const auto [entry, is_new] = words.own.emplace(given.name, given);
    require(is_new, Status::usage, "{}: given twice, expected once", given.where);
  }
  PlannedOptions& options = words.options;
  const auto given = [&](const char* name) {
    const auto found = words.own.find(name);
    return found == words.own.end() ? nullptr : &found->second;
  };
  options.json = given("json") != nullptr;
  if (const Given* ranks = given("ranks")) options.ranks = parse_rank_counts(*ranks);
  if (const Given* count = given("ranks-per-node")) {
    options.ranks_per_node = static_cast<int>(parse_integer(count->value, count->where, 1, 65536));
  }
  if (const Given* memory = given("device-memory")) {
    of_job.push_back({"device.memory-limit", memory->value, memory->where});
  }
  if (const Given* preset = given("preset")) set_preset(options, of_job, *preset);
  const bool needs_ranks = options.ranks.empty() && !words.own.contains(without_ranks);
  if (needs_ranks && allocation.ranks) {
    options.ranks = {*allocation.ranks};
    if (!options.ranks_per_node) options.ranks_per_node = allocation.ranks_per_node;
    options.node_bytes = allocation.node_bytes.value_or(0);
  }
  require(!options.ranks.empty() || !needs_ranks, Status::usage,
          "--ranks is missing, expected the number of ranks");
  options.given = of_job;
  options.allocation = allocation;
  Draft draft = read_draft(JobKind::any, of_job, line.operands);
  const bool has_clips =
      !draft.texts.empty() || !draft.prompt_file.empty() || !draft.job.clips.empty();
  if (!draft.job.train && !has_clips) draft.texts.emplace_back();
  draft.job.train ? add_sampled_clips(draft.job) : add_clips(draft);
  if (has_clips) warn_of_empty_prompts(draft.job.clips);
  options.job = std::move(draft.job);
  options.job.model.without_weights = true;
  if (options.preset) options.given.back() = {"model.path", PresetFolder::instead, ""};
  if (const MachineTimes* const machine = options.job.machine.get()) {
    if (machine->on_gpu && options.job.backend == Backend::automatic) {
      options.job.backend = Backend::cuda;
    }
    if (machine->memory > 0 && options.job.memory_limits.empty()) {
      options.job.memory_limits = {machine->memory};
    }
  }
  if (needs_ranks && !options.job.threads) options.job.threads = allocation.threads;
  return words;
}

void require_one_count(const PlannedOptions& options, const std::string& command) {
  require(options.ranks.size() == 1, Status::usage,
          "--ranks: several numbers are given with {}, expected one", command);
}

std::vector<HelpLine> planned_help() {
  return {{"--ranks N", "ranks of the job, 1 to 65536 [default: those of Slurm or mpirun]"},
          {"--ranks-per-node M", "ranks of a node [default: all ranks on one node]"},
          {"--preset NAME", "a preset of make-model instead of model.path: no weights are needed",
           preset_names()},
          {"--device-memory SIZES", "the same as --device.memory-limit"},
          {"--json", "print JSON"},
          {"--config FILE", "job file"},
          {"--from JOB.h5", "an earlier job instead of a job file"},
          {"--clips LIST", "with --from: only these clips, from their saved states on"},
          {"--help", "print this text"}};
}

const char* const options_of_job =
    "The options of the job are those of run, or of train if one of [data], [train] or\n"
    "[lora] is given: reelmesh run --help, reelmesh train --help. Prompts, output.path\n"
    "and data.path may be missing (the plan is then for one clip with an empty prompt).\n"
    "device.threads is 1 unless given, and device.speeds = auto counts as equal.";

}  // namespace reelmesh::app

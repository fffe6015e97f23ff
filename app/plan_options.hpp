#pragma once
// Options of `reelmesh plan` and of the commands beside it. Each has a source of its own
// (plan_*.cpp).
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "forecast/batch_system.hpp"
#include "forecast/simulation.hpp"
#include "given.hpp"
#include "help.hpp"
#include "job/job.hpp"
#include "preset.hpp"

namespace reelmesh::app {

/// The options of `run`, with output.path and prompts optional. With an option that only `train`
/// has, those of `train` instead, with data.path and output.path optional. --device-memory is
/// another name of device.memory-limit. The model may be a preset of make-model, or without
/// weights.
struct PlannedOptions {
  Job job;
  std::vector<int> ranks;             ///< of the job; several: they are compared
  std::optional<int> ranks_per_node;  ///< default: all on one node
  bool json = false;
  std::int64_t node_bytes = 0;  ///< host memory of a node of the allocation; 0: unknown
  std::vector<Given> given;     ///< the options of the job on the command line, for its submission
  Allocation allocation;
  std::shared_ptr<const PresetFolder> preset;  ///< null: model.path is given
};

struct PlanOptions : PlannedOptions {
  /// Seconds in which the job is to be done, by the fewest ranks; at most `ranks`, if given.
  std::optional<double> deadline;
};
/// allocation: gives ranks, and with them threads and node_bytes, unless ranks are given.
PlanOptions parse_plan(int argc, const char* const* argv, const Allocation& allocation = {});
HelpPage plan_help();

PlannedOptions parse_compare(int argc, const char* const* argv, const Allocation& allocation = {});
HelpPage compare_help();

struct SimulateOptions : PlannedOptions {
  std::filesystem::path folder;  ///< of the simulated job
  SimulatedFailures failures;
};
SimulateOptions parse_simulate(int argc, const char* const* argv,
                               const Allocation& allocation = {});
HelpPage simulate_help();

struct CalibrateOptions {
  Job job;                     ///< only the device's options are set
  std::filesystem::path file;  ///< a machine file to write
};
CalibrateOptions parse_calibrate(int argc, const char* const* argv);
HelpPage calibrate_help();

struct CorrectOptions {
  Job job;                       ///< that was run
  std::filesystem::path folder;  ///< of the job
  std::filesystem::path to;      ///< a machine file to write; empty: none
  bool json = false;
};
CorrectOptions parse_correct(int argc, const char* const* argv);
HelpPage correct_help();

/// What a command that plans a job is given.
struct PlannedWords {
  PlannedOptions options;
  std::map<std::string, Given> own;  ///< options of this command, by name
  std::string operand;
};
/// command: "plan compare", for messages. own: names of its options beside those of PlannedOptions.
/// operand: what is expected, such as "OUT, a new folder"; empty: none. without_ranks: an option of
/// `own` with which --ranks may be missing.
PlannedWords parse_planned(int argc, const char* const* argv, const Allocation& allocation,
                           std::span<const char* const> own, const std::string& operand = {},
                           const std::string& without_ranks = {});
/// Error(usage) unless one number of --ranks is given.
void require_one_count(const PlannedOptions& options, const std::string& command);
/// The only operand. Error(usage) if there is none, or more, or an option is given twice.
std::filesystem::path only_operand(const CommandLine& line, const std::string& expected);
/// The help of the options that all commands which plan a job have.
std::vector<HelpLine> planned_help();
/// That a page of help does not repeat the options of run and train.
extern const char* const options_of_job;

}  // namespace reelmesh::app

#pragma once
// From the words of the command line to what is asked for. Pure but for reading the files that the
// words name; every rank does it alike.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "plan/job.hpp"

namespace reelmesh::app {

/// `reelmesh run …`, argv[0] being "run". The command line wins over the file of --config; the
/// prompts of either are taken whole. Relative paths are relative to the current folder. Throws
/// Error with the option, or file and line, in its one-line message: usage, no_input (a file that
/// does not exist), data (a file that is not text), unavailable (a backend not built).
Job parse_run(int argc, const char* const* argv);
std::string run_help();

/// `reelmesh plan …`: the options of `run`, of which output.path and prompts may be missing, and
/// those of its own. device.memory-limit and --device-memory are two names of one option.
struct PlanOptions {
  Job job;
  int ranks = 0;
  int ranks_per_node = 0;  ///< default: all on one node
  bool json = false;
};
PlanOptions parse_plan(int argc, const char* const* argv);
std::string plan_help();

struct InspectOptions {
  std::filesystem::path model;
};
InspectOptions parse_inspect(int argc, const char* const* argv);
std::string inspect_help();

struct MakeModelOptions {
  std::string preset;  ///< not checked here
  std::filesystem::path folder;
  std::uint64_t seed = 42;
  std::optional<DType> dtype;                 ///< default: the preset's
  std::optional<std::int64_t> layers;         ///< of the transformer; default: the preset's
  std::optional<std::int64_t> text_layers;    ///< of the text encoder; default: the preset's
  std::optional<std::filesystem::path> text;  ///< default: tokenizer_text.hpp
};
MakeModelOptions parse_make_model(int argc, const char* const* argv);
std::string make_model_help();

}  // namespace reelmesh::app

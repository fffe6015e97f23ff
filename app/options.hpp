#pragma once
// Parses the command line. No side effects except reading the given files; every rank gets the same
// result.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "help.hpp"
#include "job/job.hpp"

namespace reelmesh::app {

/// `reelmesh run …`, with argv[0] "run". Options override the --config file; if prompts are given
/// on the command line, all prompts of the file are dropped. With --from instead, options and clips
/// are those of an earlier job. Relative paths are relative to the current folder. Throws Error
/// with the option, or file and line, in its one-line message: usage, no_input (a file does not
/// exist), data (a file is not text), unavailable (a backend is not built), stopped (as
/// stop::leave_if_requested). before_prompts: called with all but the clips, before a file with a
/// million prompts may be read.
Job parse_run(int argc, const char* const* argv,
              const std::function<void(const Job&)>& before_prompts = {});
HelpPage run_help();

/// `reelmesh train …`: the job has `train`. As parse_run, without --from.
Job parse_train(int argc, const char* const* argv);
HelpPage train_help();

struct InspectOptions {
  std::filesystem::path model;  ///< the folder of a model, or a LoRA
  std::vector<LoraFile> loras;
};
InspectOptions parse_inspect(int argc, const char* const* argv);
HelpPage inspect_help();

struct MakeModelOptions {
  std::string preset;  ///< not checked here
  std::filesystem::path folder;
  std::uint64_t seed = 42;
  std::optional<DType> dtype;                 ///< default: the preset's
  std::optional<std::int64_t> layers;         ///< of the transformer; default: the preset's
  std::optional<std::int64_t> text_layers;    ///< of the text encoder; default: the preset's
  std::optional<std::filesystem::path> text;  ///< default: tokenizer_text.hpp
  bool sync = true;                           ///< files are flushed to the disk
};
MakeModelOptions parse_make_model(int argc, const char* const* argv);
HelpPage make_model_help();

}  // namespace reelmesh::app

#pragma once
// The table of all keys, used for the command line, job files, --help, suggestions and the list of
// effective options.
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/job.hpp"

namespace reelmesh::app {

/// A job while its options are being parsed.
struct Draft {
  Job job;
  std::vector<std::string> texts;     ///< prompt.text
  std::filesystem::path prompt_file;  ///< prompt.file
  std::string negative;               ///< prompt.negative
};

struct Key {
  const char* name;      ///< "section.key"
  const char* value;     ///< placeholder of the value in --help
  const char* help;      ///< includes the default if `fallback` is null
  const char* fallback;  ///< default value; nullptr: none
  /// Parses the value into the draft. Error messages begin with `option`.
  void (*set)(Draft& draft, std::string_view text, const std::string& option);
  bool repeatable = false;
};

/// In the order of --help; keys of a section are contiguous.
std::span<const Key> keys();

}  // namespace reelmesh::app

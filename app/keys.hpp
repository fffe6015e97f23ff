#pragma once
// The one table of keys: it serves the command line, job files, --help, suggestions and the list of
// options in effect.
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/job.hpp"

namespace reelmesh::app {

/// A job while its options are read.
struct Draft {
  Job job;
  std::vector<std::string> texts;     ///< prompt.text
  std::filesystem::path prompt_file;  ///< prompt.file
  std::string negative;               ///< prompt.negative
};

struct Key {
  const char* name;      ///< "section.key"
  const char* value;     ///< how --help calls its value
  const char* help;      ///< says the default where `fallback` does not
  const char* fallback;  ///< the value in effect when none is given; nullptr: none
  /// Reads the value into the draft. Errors begin with `option`.
  void (*set)(Draft& draft, std::string_view text, const std::string& option);
  bool repeatable = false;
};

/// In the order of the help; keys of a section stand together.
std::span<const Key> keys();

}  // namespace reelmesh::app

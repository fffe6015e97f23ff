#pragma once
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace reelmesh::app {

struct Outcome {
  int status = -1;
  std::string text;  ///< standard output and standard error
};

/// Runs a command line; the status is -1 if it did not exit normally.
inline Outcome shell(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.text.append(buffer.data(), count);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  return outcome;
}

}  // namespace reelmesh::app

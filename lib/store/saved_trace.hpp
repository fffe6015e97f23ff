#pragma once
// The stages that trace.h5 of an earlier job has.
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace reelmesh {

/// A span of an earlier job.
struct SavedSpan {
  std::string_view name;
  int rank = 0;
  int clip = -1, step = -1;  ///< -1: none
  double start = 0, seconds = 0;
  double flops = 0;  ///< floating-point operations within it
};

struct SavedRank {
  std::string host;
  int threads = 1;
};

/// The ranks of a trace; errors as read_trace().
std::vector<SavedRank> read_trace_ranks(const std::filesystem::path& path);

/// Reads the ranks of a trace, whose file is untrusted, and calls use() with each of its
/// spans. Error(no_input) if the file is missing; Error(data) if it is damaged, no trace, or of a
/// newer format.
std::vector<SavedRank> read_trace(const std::filesystem::path& path,
                                  const std::function<void(const SavedSpan&)>& use);

}  // namespace reelmesh

#pragma once
// How a training goes, as an HDF5 file OUT/metrics.h5 with a row for each step.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace reelmesh {

/// A row of metrics.h5.
struct StepMetrics {
  double loss = 0;           ///< mean over the clips of the step
  double gradient_norm = 0;  ///< of all parameters, before clipping
  double learning_rate = 0;
  double seconds = 0;  ///< wall time of the step
};

/// folder/metrics.h5
std::filesystem::path metrics_path(const std::filesystem::path& folder);

/// The metrics of a training, on one rank. The file is written again as a whole, under a temporary
/// name, and renamed: a process that is killed leaves the rows of the last writing.
class Metrics {
 public:
  /// Goes on after `done` steps with the first rows of the file that is there. Rows that it does
  /// not have are NaN, with a warning; the file is untrusted.
  explicit Metrics(std::filesystem::path folder, std::int64_t done = 0);

  std::int64_t steps() const { return static_cast<std::int64_t>(rows_.size()); }
  /// Adds the row of the next step. Writes the file if the last writing began longer ago than 5 s
  /// and 50 times as long as it took. Error(io), Error(cannot_create).
  void add(const StepMetrics& row);
  /// Writes the file, unless it has all rows. Errors as add().
  void write();

 private:
  using Clock = std::chrono::steady_clock;

  std::filesystem::path folder_;
  std::vector<StepMetrics> rows_;
  std::size_t written_ = 0;  ///< rows in the file
  Clock::time_point next_;   ///< when add() writes
};

}  // namespace reelmesh

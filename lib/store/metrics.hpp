#pragma once
// How a training goes, as an HDF5 file OUT/metrics.h5 with a row for each step, and one for each
// validation.
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "store/hdf5.hpp"

namespace reelmesh {

/// What a step gives of all its samples.
struct StepMetrics {
  double loss = 0;           ///< mean over the clips of the step
  double gradient_norm = 0;  ///< of all parameters, before clipping
  double learning_rate = 0;
  double seconds = 0;  ///< wall time of the step
};

/// What a step gives of one of its samples. As it is: of a row that is lost.
struct SampleMetrics {
  std::int32_t sample = -1;  ///< number in the data
  std::int32_t timestep = -1;
  double loss = std::numeric_limits<double>::quiet_NaN();
};

/// A validation: the mean loss of its clips at each of its timesteps.
struct ValidationMetrics {
  std::int64_t step = 0;     ///< how many steps were done before
  std::vector<double> loss;  ///< as many as MetricsForm::validation
};

/// What all rows of a file have.
struct MetricsForm {
  std::int64_t batch = 1;         ///< samples of a step
  std::int64_t timesteps = 1000;  ///< of the noise schedule
  /// Timesteps of validations, ascending; empty: there are none.
  std::vector<std::int32_t> validation;
  /// Which clips validate. Losses of others cannot be compared.
  std::string clips;
};

/// folder/metrics.h5
std::filesystem::path metrics_path(const std::filesystem::path& folder);

/// The metrics of a training, on one rank. The file is written again as a whole, under a temporary
/// name, and renamed: a process that is killed leaves the rows of the last writing.
class Metrics {
 public:
  /// Goes on after `done` steps with the first rows of the file that is there, and with its
  /// validations up to there. Rows that it does not have are NaN, with a warning; without one those
  /// of samples in a file of an earlier version. Validations of other clips are left out, with a
  /// warning. The file is untrusted.
  explicit Metrics(std::filesystem::path folder, MetricsForm form = {}, std::int64_t done = 0);

  std::int64_t steps() const { return static_cast<std::int64_t>(rows_.size()); }
  /// Adds the row of the next step, and those of its samples: form.batch. Writes the file if the
  /// last writing began longer ago than 5 s and 50 times as long as it took. Error(io),
  /// Error(cannot_create).
  void add(const StepMetrics& row, std::span<const SampleMetrics> samples);
  /// Whether there is a validation after so many steps.
  bool has_validation(std::int64_t step) const;
  /// After how many steps, but 0, the mean loss of a validation was the least; 0: there is none.
  std::int64_t best_step() const;
  /// Adds the validation after the steps so far.
  void add_validation(std::vector<double> loss);
  /// Writes the file, unless it has all rows or there is no step. Errors as add().
  void write();

 private:
  using Clock = std::chrono::steady_clock;
  void read_validations(hid_t file, std::int64_t done);
  void write_rows(hid_t file) const;

  std::filesystem::path folder_;
  MetricsForm form_;
  std::vector<StepMetrics> rows_;
  std::vector<SampleMetrics> samples_;  ///< [step, place in the batch]
  std::vector<ValidationMetrics> validations_;
  bool written_ = true;     ///< whether the file has all rows
  Clock::time_point next_;  ///< when add() writes
};

}  // namespace reelmesh

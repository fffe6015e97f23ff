#pragma once
// What OUT/status.json says of a running training.
#include <mutex>
#include <optional>

#include "pipeline/status_file.hpp"

namespace reelmesh::train {

/// The thread that trains says what it does, and that of pipeline::StatusFile reads it.
class TrainingStatus {
 public:
  explicit TrainingStatus(std::int64_t steps) : steps_(steps) {}

  /// What the job does from now on: "encoding samples", "training", … A literal.
  void set_state(const char* state);
  /// A training goes on from a state that was saved after so many steps.
  void set_begun(std::int64_t step);
  /// Of a step that was completed. seconds: that it took.
  void set_completed(std::int64_t step, double loss, double seconds);
  void set_saved(std::int64_t step);

  /// Refers to this object.
  pipeline::StatusContent content() const;

 private:
  nlohmann::ordered_json json() const;

  const std::int64_t steps_;
  mutable std::mutex mutex_;
  const char* state_ = "starting";
  std::int64_t complete_ = 0;
  std::optional<double> loss_, step_seconds_;  // of the last step; none before the first
  std::optional<std::int64_t> saved_;
};

}  // namespace reelmesh::train

#include "train/status.hpp"

#include <nlohmann/json.hpp>

namespace reelmesh::train {

void TrainingStatus::set_state(const char* state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void TrainingStatus::set_begun(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  complete_ = step;
  if (step > 0) saved_ = step;
}

void TrainingStatus::set_completed(std::int64_t step, double loss, double seconds) {
  const std::lock_guard lock(mutex_);
  complete_ = step;
  loss_ = loss;
  step_seconds_ = seconds;
}

void TrainingStatus::set_saved(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  saved_ = step;
}

nlohmann::ordered_json TrainingStatus::json() const {
  const auto value_or_null = [](const auto& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  const std::lock_guard lock(mutex_);
  return {{"steps", steps_},
          {"complete", complete_},
          {"state", state_},
          {"loss", value_or_null(loss_)},
          {"step_seconds", value_or_null(step_seconds_)},
          {"saved_step", value_or_null(saved_)}};
}

pipeline::StatusContent TrainingStatus::content() const {
  return {.job = [this](const std::vector<comm::Activity>&) { return json(); },
          .steps = {},
          .line = {}};
}

}  // namespace reelmesh::train

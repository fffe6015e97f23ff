#pragma once
// The samplers of flow models. To add one: a class, a row of flow_samplers(), and how its
// scheduler_config.json is read (models/common/flow_scheduler.cpp).
#include <memory>
#include <span>
#include <string_view>

#include "sampler/flow_schedule.hpp"
#include "sampler/sampler.hpp"

namespace reelmesh {

/// A row of a table of samplers (sampler_rows.hpp).
struct FlowSampler {
  std::string_view option, class_name;
  // Errors of FlowSchedule.
  FlowSchedule (*schedule)(const FlowSettings& settings, int steps);
  std::unique_ptr<const Sampler> (*make)(const FlowSettings& settings, int steps);
};
std::span<const FlowSampler> flow_samplers();

}  // namespace reelmesh

#pragma once
// The samplers of flow models by their names.
#include <memory>
#include <span>
#include <string_view>

#include "sampler/flow_schedule.hpp"
#include "sampler/sampler.hpp"

namespace reelmesh {

struct FlowSampler {
  std::string_view option;      ///< the sample.scheduler of a job: "unipc"
  std::string_view class_name;  ///< the _class_name of scheduler_config.json
  /// Errors of FlowSchedule.
  std::unique_ptr<const Sampler> (*make)(const FlowSettings& settings, int steps);
};

std::span<const FlowSampler> flow_samplers();
/// Throws Error(data) for another class.
const FlowSampler& flow_sampler_of_class(std::string_view name);
/// Throws Error(usage) for another name.
const FlowSampler& flow_sampler_of_option(std::string_view name);

}  // namespace reelmesh

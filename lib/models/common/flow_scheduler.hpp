#pragma once
#include "sampler/flow_samplers.hpp"
#include "weights/config.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh {

/// The scheduler of a flow model, as diffusers reads scheduler_config.json.
struct FlowScheduler {
  FlowSettings settings;
  const FlowSampler* sampler = nullptr;
};

/// named: the class of the scheduler (class_of_part). Keys that are missing have the defaults of
/// that class in diffusers. Error(data) for another class than those of flow_samplers(), and for
/// settings that are not supported, naming file, key, what was found and what was expected.
FlowScheduler read_flow_scheduler(const Config& config, const NamedClass& named);

}  // namespace reelmesh

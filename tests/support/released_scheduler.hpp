#pragma once
#include "sampler/noise_schedule.hpp"

namespace reelmesh {

/// The scheduler_config.json of released CogVideoX models, with a change of it.
template <class Change>
SchedulerConfig changed_scheduler(Change&& change) {
  SchedulerConfig config;
  config.prediction_type = "v_prediction";
  config.rescale_betas_zero_snr = true;
  config.timestep_spacing = "trailing";
  change(config);
  return config;
}
inline SchedulerConfig released_scheduler() {
  return changed_scheduler([](SchedulerConfig&) {});
}

}  // namespace reelmesh

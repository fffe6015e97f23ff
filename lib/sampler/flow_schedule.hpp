#pragma once
// Noise levels of flow models, whose latents are (1 − σ)·clean + σ·noise: σ falls from 1 to 0.
#include <compare>
#include <cstdint>
#include <vector>

namespace reelmesh {

/// What the samplers of flow models have in common.
struct FlowSettings {
  std::int64_t num_train_timesteps = 1000;
  /// Moves noise levels towards the noise: σ → shift·σ/(1 + (shift − 1)·σ). More for larger videos.
  double shift = 1;
  /// Of all steps, before the shift; empty: the sampler's. Only of Euler's.
  std::vector<double> levels = {};
  int skipped = 0;  ///< of the first steps, which a clip made from a video leaves out
  friend auto operator<=>(const FlowSettings&, const FlowSettings&) = default;
};

/// Throws Error(data) for a number of timesteps, Error(usage) for a shift that no model has.
void check(const FlowSettings& settings);

/// The noise levels of one sampling run.
struct FlowSchedule {
  std::vector<float> sigmas;      ///< one more than timesteps: the last one is 0
  std::vector<double> timesteps;  ///< that the model is called with, descending
};

// steps: with those that are skipped, which are fewer. Error(usage) unless 1 ≤ steps ≤
// num_train_timesteps, for levels of another number of steps, and for those that the sampler does
// not take; errors of check().

/// As set_timesteps of diffusers' UniPCMultistepScheduler with use_flow_sigmas: timesteps are
/// rounded down, noise levels are not.
FlowSchedule unipc_schedule(const FlowSettings& settings, int steps);
/// As that of diffusers' FlowMatchEulerDiscreteScheduler, which applies the shift to the lowest
/// noise level twice. Timesteps are float32 and not rounded.
FlowSchedule euler_schedule(const FlowSettings& settings, int steps);

}  // namespace reelmesh

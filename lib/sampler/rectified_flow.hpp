#pragma once
// The sampler of Open-Sora 1.2: straight lines from noise to data (rectified flow; Liu et al.
// 2022), with timesteps that are shifted towards the noise for larger videos (Esser et al. 2024).
// Source of the rules: RFLOW and timestep_transform of Open-Sora 1.2, in float32.
#include <cstdint>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {

/// The fields of scheduler_config.json for _class_name RFLOW; defaults are those of Open-Sora's
/// constructor. Released models are used with 30 steps, a scale of 7 and shifted timesteps.
struct RectifiedFlowConfig {
  std::int64_t num_sampling_steps = 10;
  double cfg_scale = 4.0;
  std::int64_t num_timesteps = 1000;
  bool use_discrete_timesteps = false;  ///< rounded before they are shifted
  bool use_timestep_transform = false;
};

/// Throws Error(data) naming the key of scheduler_config.json whose value is not supported.
void check(const RectifiedFlowConfig& config);

/// Of a video, in pixels.
struct VideoSize {
  std::int64_t height = 0, width = 0, frames = 0;
};

class RectifiedFlow {
 public:
  /// Throws Error(data) as check(), Error(usage) unless 1 ≤ steps ≤ num_timesteps.
  RectifiedFlow(const RectifiedFlowConfig& config, int steps, const VideoSize& size);

  int calls() const { return static_cast<int>(timesteps_.size()); }
  /// What the model is called with: num_timesteps and less, not integers.
  const std::vector<float>& timesteps() const { return timesteps_; }

  /// x: float32 [frame, channel, row, column], the box of the latent after i steps, replaced by
  /// that after i + 1. prediction: float32 [frame, channel or 2·channel, row, column], the guided
  /// velocity, on the same device; channels behind those of x are not read. Draws no noise. All
  /// devices give the bits of the host.
  void step(int i, const Tensor& prediction, const Tensor& x) const;

 private:
  std::vector<float> timesteps_;
  std::vector<float> strides_;  ///< of each step
};

}  // namespace reelmesh

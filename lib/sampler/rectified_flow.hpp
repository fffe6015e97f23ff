#pragma once
// The sampler of Open-Sora 1.2: Euler steps of a rectified flow (Liu et al. 2022), with timesteps
// that are shifted towards the noise for larger videos (Esser et al. 2024). Source of the rules:
// RFLOW and timestep_transform of Open-Sora 1.2, in float32.
#include <cstdint>
#include <string_view>
#include <vector>

#include "sampler/sampler.hpp"
#include "sampler/video_size.hpp"

namespace reelmesh {

/// The fields of scheduler_config.json for _class_name RFLOW; defaults are those of Open-Sora's
/// constructor. Released models are used with 30 steps, a scale of 7 and shifted timesteps.
struct RectifiedFlowConfig {
  static constexpr std::string_view class_name = "RFLOW";  ///< in scheduler_config.json
  std::int64_t num_sampling_steps = 10;
  double cfg_scale = 4.0;
  std::int64_t num_timesteps = 1000;
  bool use_discrete_timesteps = false;  ///< rounded before the shift
  bool use_timestep_transform = false;
};

/// Throws Error(data) naming the key of scheduler_config.json whose value is not supported.
void check(const RectifiedFlowConfig& config);

/// By how much timesteps are shifted: √(pixels / 512²)·√(latent frames), where every full 17 frames
/// count as 5 latent frames and a single frame as 1. Error(usage) for 2 to 16 frames, which have
/// none.
float shift_ratio(const VideoSize& size);

/// x ← x + stride·prediction, on the device of x. x: [frame, channel, row, column], prediction:
/// [frame, channel or more, row, column], float32; channels after those of x are ignored.
void flow_step(float stride, const Tensor& prediction, Tensor& x);

class RectifiedFlow final : public Sampler {
 public:
  /// Throws Error(data) as check(), Error(usage) unless 1 ≤ steps ≤ num_timesteps, or if shifted
  /// timesteps are used for 2 to 16 frames.
  RectifiedFlow(const RectifiedFlowConfig& config, int steps, const VideoSize& size);

  int calls() const override { return static_cast<int>(timesteps_.size()); }
  double timestep(int i) const override { return timesteps_.at(static_cast<std::size_t>(i)); }
  /// The timesteps that the model is called with: descending from num_timesteps, floats.
  const std::vector<float>& timesteps() const { return timesteps_; }

  /// x: [frame, channel, row, column]. prediction: [frame, channel or 2·channel, row, column], the
  /// guided velocity; channels after those of x are ignored. Draws no noise and keeps nothing
  /// between steps.
  void step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
            const DrawNoise& draw) const override;
  CleanFactors clean_factors(int i) const override;

 private:
  std::vector<float> timesteps_;
  std::vector<float> strides_;  ///< size of each step, in units of num_timesteps
  std::vector<float> levels_;   ///< of noise before each step, likewise
};

}  // namespace reelmesh

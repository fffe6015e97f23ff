#pragma once
// The sampler of one clip on one rank: holds what passes from step to step for the local box, on
// the device where the latent is.
#include <functional>
#include <span>
#include <string_view>

#include "sampler/schedule.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh {

enum class SamplerKind {
  ddim,  ///< CogVideoXDDIMScheduler: without noise
  dpm,   ///< CogVideoXDPMScheduler: stochastic DPM-Solver++ (2M)
};

/// "CogVideoXDDIMScheduler" or "CogVideoXDPMScheduler", the _class_name of scheduler_config.json.
/// Throws Error(data) for anything else.
SamplerKind sampler_kind_of_class(std::string_view name);
/// "ddim" or "dpm", the sample.scheduler of a job. Throws Error(usage) for anything else.
SamplerKind sampler_kind_of_option(std::string_view name);

class Sampler {
 public:
  /// Fills the span, of the host, with the box of the next torch.randn of the whole latent. Noise
  /// is drawn on the host whatever the device, so that a seed gives the same everywhere.
  using DrawNoise = std::function<void(std::span<float> box)>;

  Sampler(SamplerKind kind, Schedule schedule);

  const Schedule& schedule() const { return schedule_; }

  /// Noise boxes that step i draws: none with DDIM; with DPM one on the first and the last step and
  /// two on all others, where the reference draws one and throws it away.
  int draws(int i) const;

  /// x: the box of the latent after i steps, float32, replaced by that after i + 1. v: the model's
  /// prediction (guided) for it, on the same device. Steps are made in order; step 0 starts a new
  /// clip, on the device of x. All devices give the bits of the host.
  void step(int i, const Tensor& v, const Tensor& x, const DrawNoise& draw);

 private:
  SamplerKind kind_;
  Schedule schedule_;
  int next_ = 0;
  Tensor clean_;  // DPM: clean latent predicted on the last step
  Tensor noise_;  // on the host
};

}  // namespace reelmesh

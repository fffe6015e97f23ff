#pragma once
// CogVideoX's samplers, as in diffusers.
#include <memory>
#include <string_view>

#include "sampler/noise_schedule.hpp"
#include "sampler/sampler.hpp"

namespace reelmesh {

enum class SamplerKind {
  ddim,  ///< CogVideoXDDIMScheduler: deterministic
  dpm,   ///< CogVideoXDPMScheduler: stochastic DPM-Solver++ (2M)
};

/// "CogVideoXDDIMScheduler" or "CogVideoXDPMScheduler", the _class_name of scheduler_config.json.
/// Throws Error(data) for anything else.
SamplerKind sampler_kind_of_class(std::string_view name);
/// "ddim" or "dpm", the sample.scheduler of a job. Throws Error(usage) for anything else.
SamplerKind sampler_kind_of_option(std::string_view name);
std::string_view scheduler_class(SamplerKind kind);  ///< the _class_name

/// Draws no noise and keeps nothing between steps.
class DdimSampler final : public Sampler {
 public:
  explicit DdimSampler(NoiseSchedule schedule) : schedule_(std::move(schedule)) {}
  int calls() const override { return schedule_.calls(); }
  double timestep(int i) const override { return schedule_.timestep(i); }
  void step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
            const DrawNoise& draw) const override;

 private:
  NoiseSchedule schedule_;
};

/// Keeps the clean latents (x0) predicted in the previous step. Draws noise once in the first and
/// the last step and twice in all others, because the reference discards its first draw there.
class DpmSampler final : public Sampler {
 public:
  explicit DpmSampler(NoiseSchedule schedule) : schedule_(std::move(schedule)) {}
  int calls() const override { return schedule_.calls(); }
  double timestep(int i) const override { return schedule_.timestep(i); }
  int draws(int i) const { return i == 0 || schedule_.target(i) < 0 ? 1 : 2; }
  void step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
            const DrawNoise& draw) const override;

 private:
  NoiseSchedule schedule_;
};

std::unique_ptr<const Sampler> make_sampler(SamplerKind kind, NoiseSchedule schedule);

}  // namespace reelmesh

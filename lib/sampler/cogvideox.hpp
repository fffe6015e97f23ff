#pragma once
// CogVideoX's samplers, as in diffusers. To add one: a class, and a row of cogvideox_samplers().
#include <memory>
#include <span>
#include <string_view>

#include "sampler/noise_schedule.hpp"
#include "sampler/sampler.hpp"

namespace reelmesh {

/// A row of a table of samplers (sampler_rows.hpp).
struct CogVideoXSampler {
  std::string_view option, class_name;
  std::unique_ptr<const Sampler> (*make)(NoiseSchedule schedule);
};
std::span<const CogVideoXSampler> cogvideox_samplers();

/// Deterministic. Draws no noise and keeps nothing between steps.
class DdimSampler final : public Sampler {
 public:
  explicit DdimSampler(NoiseSchedule schedule) : schedule_(std::move(schedule)) {}
  int calls() const override { return schedule_.calls(); }
  double timestep(int i) const override { return schedule_.timestep(i); }
  void step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
            const DrawNoise& draw) const override;
  CleanFactors clean_factors(int i) const override;

 private:
  NoiseSchedule schedule_;
};

/// Stochastic DPM-Solver++ (2M). Keeps the clean latents (x0) predicted in the previous step. Draws
/// noise once in the first and the last step and twice in all others, because the reference
/// discards its first draw there.
class DpmSampler final : public Sampler {
 public:
  explicit DpmSampler(NoiseSchedule schedule) : schedule_(std::move(schedule)) {}
  int calls() const override { return schedule_.calls(); }
  double timestep(int i) const override { return schedule_.timestep(i); }
  int draws(int i) const { return i == 0 || schedule_.target(i) < 0 ? 1 : 2; }
  void step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
            const DrawNoise& draw) const override;
  CleanFactors clean_factors(int i) const override;

 private:
  NoiseSchedule schedule_;
};

}  // namespace reelmesh

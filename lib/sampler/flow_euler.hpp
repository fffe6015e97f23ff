#pragma once
// Euler steps of flow models. Source of the rules: FlowMatchEulerDiscreteScheduler of diffusers, as
// Wan's pipelines call it.
#include "sampler/flow_schedule.hpp"
#include "sampler/sampler.hpp"

namespace reelmesh {

/// Draws no noise and keeps nothing between steps.
class FlowEuler final : public Sampler {
 public:
  /// Errors of FlowSchedule.
  FlowEuler(const FlowSettings& settings, int steps) : schedule_(euler_schedule(settings, steps)) {}

  int calls() const override { return static_cast<int>(schedule_.timesteps.size()); }
  double timestep(int i) const override {
    return schedule_.timesteps.at(static_cast<std::size_t>(i));
  }
  const std::vector<float>& sigmas() const { return schedule_.sigmas; }
  /// x ← x + (σ′ − σ)·prediction; x and prediction: [frame, channel, row, column].
  void step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
            const DrawNoise& draw) const override;
  CleanFactors clean_factors(int i) const override;

 private:
  FlowSchedule schedule_;
};

}  // namespace reelmesh

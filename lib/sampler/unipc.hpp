#pragma once
// UniPC (Zhao et al. 2023) of order 2 for flow models, with B(h) = e^h − 1 ("bh2"), predictions of
// clean latents and a corrector. Source of the rules: UniPCMultistepScheduler of diffusers with
// use_flow_sigmas and prediction_type flow_prediction, as Wan's pipelines call it.
#include <cstdint>
#include <vector>

#include "sampler/flow_schedule.hpp"
#include "sampler/sampler.hpp"

namespace reelmesh {

/// Factors of a step from the clean latents m0 and the sample s of one noise level to the next one:
/// sample·s − clean·(m0 + residual), where the residual depends on the order.
struct UniPcStep {
  int order = 0;     ///< 0: there is no such step; 1 or 2
  float sample = 0;  ///< σ′/σ
  float clean = 0;   ///< (1 − σ′)·(e^−h − 1)
  float ratio = 1;   ///< order 2: (λ_before − λ)/h, where λ_before is that of m1
};

/// Of one step, computed in float64 from float32 noise levels, and rounded to float32.
struct UniPcCoefficients {
  float sigma = 0;               ///< m = x − sigma·v
  UniPcStep corrector;           ///< from the sample and m of the step before to this noise level
  float change = 0, before = 0;  ///< corrector's residual: before·(m1 − m0)/ratio + change·(m − m0)
  UniPcStep predictor;           ///< to the next noise level
};

/// What one step passes to the next, for each element of the latents.
struct UniPcKept {
  Tensor clean;         ///< m of the last step
  Tensor clean_before;  ///< m of the step before it; not used in the first two steps
  Tensor sample;        ///< the corrected sample of the last step
};

/// Keeps three tensors between steps, those of UniPcKept in this order; draws no noise.
class UniPc final : public Sampler {
 public:
  /// Errors of FlowSchedule.
  UniPc(const FlowSettings& settings, int steps);

  int calls() const override { return static_cast<int>(schedule_.timesteps.size()); }
  /// Integers: those of the model's training that are next below.
  double timestep(int i) const override {
    return schedule_.timesteps.at(static_cast<std::size_t>(i));
  }
  const std::vector<float>& sigmas() const { return schedule_.sigmas; }
  UniPcCoefficients coefficients(int i) const;
  /// prediction: the guided velocity, of as many elements as x.
  void step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
            const DrawNoise& draw) const override;
  CleanFactors clean_factors(int i) const override;

 private:
  double lambda(int i) const;
  UniPcStep step_between(int from, int order) const;

  FlowSchedule schedule_;
};

}  // namespace reelmesh

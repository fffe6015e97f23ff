#pragma once
// The loss with which Open-Sora 1.0 is trained: the squared error of the predicted noise, and the
// variational bound of the learned variance in bits (Nichol & Dhariwal 2021, L_hybrid), whose
// gradient does not reach the noise. Source: training_losses() of Open-Sora 1.0's
// GaussianDiffusion, loss type MSE with LEARNED_RANGE.
#include "sampler/iddpm.hpp"

namespace reelmesh {

class IddpmLoss {
 public:
  /// Errors as check(config).
  explicit IddpmLoss(const IddpmConfig& config);

  /// ᾱ of each timestep.
  const std::vector<double>& alpha_bar() const { return alpha_bar_; }

  /// What one element of latents adds to a sum of losses, and the derivatives with respect to the
  /// two predicted values.
  struct Element {
    double loss = 0;
    double d_noise = 0, d_variance = 0;
  };
  /// clean: the scaled latent, which only timestep 0 needs; noise: what was added to it; predicted:
  /// that noise, and the position −1…1 of the log variance between its bounds. In double, and
  /// without the mean of the reverse process: near timestep 0 the difference of the two means,
  /// which the bound needs, would cancel. weight: of the squared error, as training_losses() has
  /// it, and not of the bound.
  Element at(std::int64_t timestep, float clean, float noise, float predicted_noise,
             float predicted_variance, double weight = 1) const;

 private:
  struct Step {
    double error_factor;                        ///< of the difference of means for that of noises
    double min_log_variance, max_log_variance;  ///< of the posterior, and of β
  };
  std::vector<double> alpha_bar_;
  std::vector<Step> steps_;
};

}  // namespace reelmesh

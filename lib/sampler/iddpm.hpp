#pragma once
// The sampler of Open-Sora 1.0: ancestral sampling over spaced timesteps with a learned variance
// (Nichol & Dhariwal 2021). Source of the rules: IDDPM of Open-Sora 1.0, which takes them from
// OpenAI's guided-diffusion and DiT. Tables are float64 and rounded to float32 when used.
#include <cstdint>
#include <string_view>
#include <vector>

#include "sampler/sampler.hpp"

namespace reelmesh {

/// The fields of scheduler_config.json for _class_name IDDPM; defaults are those of Open-Sora's
/// constructor. Released models are used with 100 steps and a scale of 7.
struct IddpmConfig {
  static constexpr std::string_view class_name = "IDDPM";  ///< in scheduler_config.json
  std::int64_t num_sampling_steps = 1000;
  double cfg_scale = 4.0;
  /// Guidance acts on this many first channels; the others and the variance are those predicted for
  /// the prompt.
  std::int64_t guided_channels = 3;
  std::int64_t num_train_timesteps = 1000;
  double beta_start = 1e-4, beta_end = 0.02;  ///< linear schedule
};

/// Throws Error(data) naming the key of scheduler_config.json whose value is not supported.
void check(const IddpmConfig& config);

/// ᾱ of all training timesteps; betas are spaced as by numpy.linspace.
std::vector<double> alpha_bar_table(const IddpmConfig& config);

/// Factors of one step, computed in float64 and rounded to float32.
struct IddpmCoefficients {
  float sample_to_clean, noise_to_clean;  ///< x0 = sample_to_clean·x − noise_to_clean·ε
  float clean, sample;                    ///< mean = clean·x0 + sample·x
  float min_log_variance, max_log_variance;
};

class Iddpm final : public Sampler {
 public:
  /// Throws Error(data) as check(), Error(usage) unless 2 ≤ steps ≤ num_train_timesteps (the
  /// variance of the last step is that of the one before it).
  Iddpm(const IddpmConfig& config, int steps);

  int calls() const override { return static_cast<int>(timesteps_.size()); }
  double timestep(int i) const override {
    return static_cast<double>(timesteps_.at(static_cast<std::size_t>(i)));
  }
  /// The training timesteps that the model is called with, descending.
  const std::vector<std::int64_t>& timesteps() const { return timesteps_; }

  /// x: [frame, channel, row, column]. prediction: [frame, 2·channel, row, column]: guided noise,
  /// then the log variance's position between its bounds (−1…1). Draws noise once per step; in the
  /// last step it is discarded. Devices give the bits of the host, except where the host's exp is
  /// not correctly rounded. Keeps nothing between steps.
  void step(int i, const Tensor& prediction, Tensor& x, std::vector<Tensor>& history,
            const DrawNoise& draw) const override;
  CleanFactors clean_factors(int i) const override;

 private:
  std::vector<std::int64_t> timesteps_;
  std::vector<IddpmCoefficients> coefficients_;  // in the order of the calls
};

}  // namespace reelmesh

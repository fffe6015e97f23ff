#pragma once
// How noise is added to latents in training, and what the model is to predict.
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sampler/generator.hpp"

namespace reelmesh {

/// How a part 0…1 of all timesteps is drawn: uniformly, or as the sigmoid of a normal number (Esser
/// et al. 2024, arXiv:2403.03206, equation 19).
enum class TimestepDraw { uniform, logit_normal };
inline constexpr std::array<std::string_view, 2> timestep_draw_names{"uniform", "logit-normal"};

/// The diffusion process of a model as it is trained for it. x: scaled latents, ε: noise.
struct TrainingNoise {
  enum class Process {
    velocity,  ///< √ᾱ·x + √(1 − ᾱ)·ε → √ᾱ·ε − √(1 − ᾱ)·x (Salimans & Ho 2022); CogVideoX
    noise,     ///< the same → ε (Ho et al. 2020); Open-Sora 1.0
    flow,  ///< (1 − t)·x + t·ε, t: timestep / timesteps → x − ε (Liu et al. 2022); Open-Sora 1.2
    flow_to_noise  ///< the same → ε − x; Wan
  };
  Process process = Process::velocity;
  std::int64_t timesteps = 1000;
  std::vector<double> alpha_bar;  ///< ᾱ of each timestep; none of flows
  /// Of flows: a drawn time t is changed to r·t/(1 + (r − 1)·t), towards noise for large videos.
  float shift_ratio = 1;
  TimestepDraw draw = TimestepDraw::uniform;
  float logit_mean = 0, logit_std = 1;  ///< of the normal number
  /// Whether timesteps are whole. The number i that is drawn is the timestep, of flow_to_noise
  /// timesteps − i: diffusers' lists of noise levels fall from 1.
  bool whole_timesteps = true;
  /// γ, by which the loss of a timestep is weighted; unset: it is not. Not of flows.
  std::optional<double> min_snr;
  double scaling_factor = 1;  ///< of latents
  /// Whether the model has an embedding of its own for an empty caption.
  bool null_caption = false;

  /// Draws randint(0, timesteps, (1,)) for whole timesteps that are uniform, rand(1) for others
  /// that are, randn(1) for logit-normal ones.
  double draw_timestep(TorchGenerator& generator) const;

  /// What the squared error at a timestep counts: 1, or with min_snr min(SNR, γ) / (SNR + 1) of a
  /// velocity and min(SNR, γ) / SNR of noise, where SNR = ᾱ / (1 − ᾱ) (Hang et al. 2023,
  /// arXiv:2303.09556, section 3.4, as in diffusers' scripts).
  double weight(double timestep) const;

  /// What an element is made of: latents = signal·x + spread·ε.
  struct Mix {
    float signal = 1, spread = 0;
  };
  Mix mix(double timestep) const;
  /// What the model is to predict.
  float target(const Mix& mix, float x, float noise) const {
    switch (process) {
      case Process::velocity:
        return mix.signal * noise - mix.spread * x;
      case Process::noise:
        return noise;
      case Process::flow:
        return x - noise;
      case Process::flow_to_noise:
        return noise - x;
    }
    return 0;
  }
};

}  // namespace reelmesh

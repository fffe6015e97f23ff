#pragma once
// One step from a noisier to a cleaner latent. Source: CogVideoXDDIMScheduler.step and
// CogVideoXDPMScheduler.step of diffusers for v-prediction. Each operation is rounded to float32,
// as in the reference's separate tensor operations, so that results are bitwise equal.
#include "sampler/noise_schedule.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh {

/// Factors of one step, computed in float64 and rounded to float32.
struct DdimCoefficients {
  float sample_to_clean, v_to_clean;  ///< x0 = sample_to_clean·x - v_to_clean·v
  float sample, clean;                ///< x ← sample·x + clean·x0
};

struct DpmCoefficients {
  float sample_to_clean, v_to_clean;      ///< x0 = sample_to_clean·x - v_to_clean·v
  float clean_now = 1, clean_before = 0;  ///< d = clean_now·x0 - clean_before·(previous step's x0)
  float sample, clean, noise;             ///< x ← sample·x - clean·d + noise·n
  bool second_order;                      ///< false in the first and the last step, where d is x0
};

/// For step i of schedule.timesteps().
DdimCoefficients ddim_coefficients(const NoiseSchedule& schedule, int i);
DpmCoefficients dpm_coefficients(const NoiseSchedule& schedule, int i);

// Computed on the device of x, with the same bits on all devices. Tensors are float32, on that
// device, with equally many elements.

/// x: latents, replaced by those of the next step. v: the model's prediction.
void ddim_step(const DdimCoefficients& c, const Tensor& v, Tensor& x);

/// clean: x0 of the previous step (not used in the first step), replaced by that of this step.
/// noise: standard normal values.
void dpm_step(const DpmCoefficients& c, const Tensor& v, const Tensor& noise, Tensor& clean,
              Tensor& x);

}  // namespace reelmesh

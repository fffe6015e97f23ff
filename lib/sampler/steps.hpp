#pragma once
// One step from a noisier to a cleaner latent. Source: CogVideoXDDIMScheduler.step and
// CogVideoXDPMScheduler.step of diffusers for v-prediction. Each line of arithmetic is rounded to
// float32 as the reference's separate tensor operations are, so that the results have equal bits.
#include "sampler/schedule.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh {

/// Factors of one step, worked out in float64 and rounded to float32.
struct DdimCoefficients {
  float sample_to_clean, v_to_clean;  ///< x0 = sample_to_clean·x - v_to_clean·v
  float sample, clean;                ///< x ← sample·x + clean·x0
};

struct DpmCoefficients {
  float sample_to_clean, v_to_clean;      ///< x0 = sample_to_clean·x - v_to_clean·v
  float clean_now = 1, clean_before = 0;  ///< d = clean_now·x0 - clean_before·(x0 of the last step)
  float sample, clean, noise;             ///< x ← sample·x - clean·d + noise·n
  bool second_order;  ///< false on the first and on the last step, where d is x0
};

/// For step i of schedule.timesteps().
DdimCoefficients ddim_coefficients(const Schedule& schedule, int i);
DpmCoefficients dpm_coefficients(const Schedule& schedule, int i);

// On the device of x, with equal bits on all. Tensors are float32, of equally many numbers and on
// that device.

/// x: latent, replaced by the next one. v: what the model predicted.
void ddim_step(const DdimCoefficients& c, const Tensor& v, Tensor& x);

/// clean: x0 of the last step (not read on the first), replaced by that of this one. noise:
/// standard normal numbers.
void dpm_step(const DpmCoefficients& c, const Tensor& v, const Tensor& noise, Tensor& clean,
              Tensor& x);

}  // namespace reelmesh

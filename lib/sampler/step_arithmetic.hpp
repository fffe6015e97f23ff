#pragma once
// A sampler's step for one element, for the host and for kernels. Each operation is rounded to
// float32 (no fused multiply-adds).
#include "base/host_device.hpp"
#include "sampler/iddpm.hpp"
#include "sampler/steps.hpp"
#include "sampler/unipc.hpp"

namespace reelmesh {

REELMESH_HOST_DEVICE inline float guided(float scale, float uncond, float cond) {
  return uncond + scale * (cond - uncond);
}

REELMESH_HOST_DEVICE inline float ddim_next(const DdimCoefficients& c, float v, float x) {
  const float clean = c.sample_to_clean * x - c.v_to_clean * v;
  return c.sample * x + c.clean * clean;
}

/// clean: x0 of the previous step, replaced by that of this step.
REELMESH_HOST_DEVICE inline float dpm_next(const DpmCoefficients& c, float v, float noise,
                                           float& clean, float x) {
  const float now = c.sample_to_clean * x - c.v_to_clean * v;
  const float d = c.second_order ? c.clean_now * now - c.clean_before * clean : now;
  clean = now;
  return c.sample * x - c.clean * d + c.noise * noise;
}

REELMESH_HOST_DEVICE inline float iddpm_mean(const IddpmCoefficients& c, float epsilon, float x) {
  const float clean = c.sample_to_clean * x - c.noise_to_clean * epsilon;
  return c.clean * clean + c.sample * x;
}

/// between: position between the bounds, −1 (minimum) to 1 (maximum).
REELMESH_HOST_DEVICE inline float iddpm_log_variance(const IddpmCoefficients& c, float between) {
  const float part = (between + 1.0F) / 2.0F;
  return part * c.max_log_variance + (1.0F - part) * c.min_log_variance;
}

/// sample·s − clean·m0 − clean·residual
REELMESH_HOST_DEVICE inline float unipc_moved(const UniPcStep& step, float sample, float clean,
                                              float residual) {
  return step.sample * sample - step.clean * clean - step.clean * residual;
}

/// clean, before, sample: UniPcKept of the step before, replaced by that of this step.
REELMESH_HOST_DEVICE inline float unipc_next(const UniPcCoefficients& c, float v, float& clean,
                                             float& before, float& sample, float x) {
  const float now = x - c.sigma * v;
  if (c.corrector.order > 0) {
    const float earlier =
        c.corrector.order == 2 ? c.before * ((before - clean) / c.corrector.ratio) : 0.0F;
    x = unipc_moved(c.corrector, sample, clean, earlier + c.change * (now - clean));
  }
  const float residual = c.predictor.order == 2 ? 0.5F * ((clean - now) / c.predictor.ratio) : 0.0F;
  before = clean;
  clean = now;
  sample = x;
  return unipc_moved(c.predictor, sample, clean, residual);
}

REELMESH_HOST_DEVICE inline float flow_next(float stride, float velocity, float x) {
  return x + velocity * stride;
}

}  // namespace reelmesh

#pragma once
// The samplers' steps for float32 tensors on a device; lib/sampler calls them where x is, having
// checked shapes.
#include "sampler/iddpm.hpp"
#include "sampler/steps.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// As reelmesh::combine_guidance.
void combine_guidance(double scale, const Tensor& uncond, const Tensor& cond, const Tensor& out);
/// As reelmesh::guide_channels.
void guide_channels(double scale, std::int64_t channels, const Tensor& uncond, const Tensor& cond);
/// As reelmesh::ddim_step.
void ddim_step(const DdimCoefficients& c, const Tensor& v, const Tensor& x);
/// As reelmesh::dpm_step.
void dpm_step(const DpmCoefficients& c, const Tensor& v, const Tensor& noise, const Tensor& clean,
              const Tensor& x);
/// As Iddpm::step; the noise is not read on the last one.
void iddpm_step(const IddpmCoefficients& c, bool last, const Tensor& prediction,
                const Tensor& noise, const Tensor& x);
/// As RectifiedFlow::step.
void flow_step(float stride, const Tensor& prediction, const Tensor& x);

}  // namespace reelmesh::gpu

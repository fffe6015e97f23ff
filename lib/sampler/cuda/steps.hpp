#pragma once
// The sampler's steps for float32 tensors on a device, with the bits of those for the host.
#include "sampler/steps.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// As reelmesh::combine_guidance.
void combine_guidance(double scale, const Tensor& uncond, const Tensor& cond, const Tensor& out);
/// As reelmesh::ddim_step.
void ddim_step(const DdimCoefficients& c, const Tensor& v, const Tensor& x);
/// As reelmesh::dpm_step.
void dpm_step(const DpmCoefficients& c, const Tensor& v, const Tensor& noise, const Tensor& clean,
              const Tensor& x);

}  // namespace reelmesh::gpu

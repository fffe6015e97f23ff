#pragma once
// The samplers' steps for float32 tensors on a device. lib/sampler calls them if x is on a device,
// after it has checked shapes.
#include "sampler/iddpm.hpp"
#include "sampler/steps.hpp"
#include "sampler/unipc.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// As reelmesh::guide_channels.
void guide_channels(double scale, std::int64_t channels, const Tensor& uncond, Tensor& cond);
/// As reelmesh::ddim_step.
void ddim_step(const DdimCoefficients& c, const Tensor& v, Tensor& x);
/// As reelmesh::dpm_step.
void dpm_step(const DpmCoefficients& c, const Tensor& v, const Tensor& noise, Tensor& clean,
              Tensor& x);
/// As Iddpm::step; the noise is not read in the last step.
void iddpm_step(const IddpmCoefficients& c, bool last, const Tensor& prediction,
                const Tensor& noise, Tensor& x);
/// As UniPc::step with the coefficients of the step; `kept` is replaced, too.
void unipc_step(const UniPcCoefficients& c, const Tensor& v, UniPcKept& kept, Tensor& x);
/// As reelmesh::flow_step.
void flow_step(float stride, const Tensor& prediction, Tensor& x);

}  // namespace reelmesh::gpu

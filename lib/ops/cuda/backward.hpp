#pragma once
// Backward passes on a CUDA device, as ops/norm_backward.hpp and ops/token_products.hpp say.
#include "ops/norm.hpp"

namespace reelmesh::gpu {

void layer_norm_backward(const Tensor& x, const Tensor& weight, float eps,
                         const ops::Modulation& modulation, const Tensor& d, Tensor& dx);
void normalise_and_rotate_backward(const Tensor& x, const ops::HeadNorm& norm,
                                   const Tensor& cosines, const Tensor& sines,
                                   std::int64_t unrotated, Tensor& d, Tensor* d_norm);
Tensor gated(const Tensor& d, const ops::Gate& gate);
Tensor gelu_tanh(const Tensor& x);
void gelu_tanh_backward(const Tensor& x, Tensor& d);
void gelu_backward(const Tensor& x, Tensor& d);
Tensor token_products(const Tensor& a, const Tensor& b);
Tensor token_sums(const Tensor& a, const Tensor& b, std::int64_t first);

}  // namespace reelmesh::gpu

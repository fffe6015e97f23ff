#pragma once
#include "ops/linear.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// activation(x·Wᵀ + b) → [..., out]; x: [..., in], weight: [out, in], bias: [out] or empty, all of
/// one type and on one device. The algorithm depends on the weight's shape, the type and the
/// epilogue, never on how many rows x has, and it adds along `in` in one piece: a row's bits depend
/// on that row only.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              ops::Activation activation);

}  // namespace reelmesh::gpu

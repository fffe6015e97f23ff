#pragma once
#include "ops/linear.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// activation(x·Wᵀ + b) → [..., out]; x: [..., in], weight: [out, in], bias: [out] or empty, all of
/// one type and on one device. With numerics.reproducible the algorithm depends on the weight's
/// shape, the type and the epilogue, not on the number of rows, and does not split sums along `in`
/// (split-K). So the bits of a row depend on that row only.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, ops::Activation activation,
              const Numerics& numerics);

}  // namespace reelmesh::gpu

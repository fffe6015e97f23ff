#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// y[b, t, r, c, o] = Σ x[b, t + i, r + j, c + k, n]·w[o, i, j, k, n]: no padding, sums in float32,
/// rounded once. x: [item, frame, row, column, in], w: [out, kt, 3, 3, in], y: [item, frames − kt +
/// 1, rows − 2, columns − 2, out], of one floating type; channels are multiples of 8. tf32: float32
/// inputs may be rounded to TF32. The algorithm is deterministic, and fixed for given shapes, type
/// and tf32. Throws Error(unavailable) if cuDNN has none.
void convolve(const Tensor& x, const Tensor& w, bool tf32, Tensor& y);

}  // namespace reelmesh::gpu

#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// y[b, t, r, c, o] = Σ x[b, t + i, r + j, c + k, n]·w[o, i, j, k, n]: no padding, sums in float32,
/// rounded once. x: [item, frame, row, column, in], w: [out, kt, 3, 3, in], y: [item, frames − kt +
/// 1, rows − 2, columns − 2, out], of one floating type, channels in multiples of 8. tf32: whether
/// factors of float32 may be rounded to TF32. One algorithm for these shapes and this choice; it is
/// deterministic.
void convolve(const Tensor& x, const Tensor& w, bool tf32, Tensor& y);

}  // namespace reelmesh::gpu

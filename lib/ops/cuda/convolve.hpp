#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// y[b, t, r, c, o] = Σ x[b, t + i, r + j, c + k, n]·w[o, i, j, k, n]: no padding, sums in float32,
/// rounded once. x: [item, frame, row, column, in], w: [out, kt, 3, 3, in], y: [item, frames − kt +
/// 1, rows − 2, columns − 2, out], of one floating type, channels in multiples of 8. One algorithm
/// for the shapes, without a sum whose order is left to chance.
void convolve(const Tensor& x, const Tensor& w, Tensor& y);

}  // namespace reelmesh::gpu

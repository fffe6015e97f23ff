#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// aᵀ·b, the sum over tokens that is the gradient of a weight. a: [token, m], b: [token, n] of one
/// floating type → float32 [m, n]. Tokens are added in blocks of 512 in their order. The bits of an
/// element depend only on its columns of a and b.
Tensor token_products(const Tensor& a, const Tensor& b);

}  // namespace reelmesh::ops

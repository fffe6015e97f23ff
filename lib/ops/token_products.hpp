#pragma once
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// aᵀ·b, the sum over tokens that is the gradient of a weight. a: [token, m], b: [token, n] of one
/// floating type → float32 [m, n]. Tokens are added in blocks of 512 in their order. The bits of an
/// element depend only on its columns of a and b.
Tensor token_products(const Tensor& a, const Tensor& b);

/// Sums over tokens of a·b, element by element, or of a if b is empty: float32 [2, column], of the
/// first `first` tokens and of those after them. These are gradients of biases, of weights of norms
/// and of modulations. a, b: [token, column] of one floating type. Tokens are added as above, in
/// blocks that begin anew after the first ones. The bits of an element depend only on its column.
Tensor token_sums(const Tensor& a, const Tensor& b, std::int64_t first);

}  // namespace reelmesh::ops

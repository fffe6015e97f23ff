#pragma once
#include <vector>

#include "ops/linear.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu {

/// activation(x·Wᵀ + b) → [..., out]; x: [..., in], weight: [out, in], bias: [out] or empty, all of
/// one type and on one device. Pass::backward: x·W, for a weight [in, out].
///
/// With numerics.reproducible the bits of a row depend only on that row: cuBLASLt's first proposal
/// for `all_rows` rows that does not split sums along `in` (split-K) is the reference, and only
/// algorithms with the reference's bits are used. Of these the fastest is taken, measured in the
/// first call with this number of rows if the product is large. If the reference does not support
/// the number of rows, or gives some rows other bits than in a call with 1024, rows are padded with
/// zeros, which trace::Recorder counts; the latter is tried in the first call with the number of
/// rows that is not captured in a graph. Without numerics.reproducible the fastest proposal for the
/// rows of x is used.
Tensor linear(const Tensor& x, const Tensor& weight, ops::Pass pass, const Tensor& bias,
              ops::Activation activation, const Numerics& numerics, std::int64_t all_rows);

/// An algorithm that cuBLASLt proposes, measured.
struct ProductTiming {
  double seconds = 0;      ///< 0: the algorithm failed
  bool same_bits = false;  ///< as the reference
};

/// Measures all algorithms that linear() chooses from for x. The first is the reference for
/// all_rows. For benchmarks.
std::vector<ProductTiming> time_products(const Tensor& x, const Tensor& weight,
                                         const Numerics& numerics, std::int64_t all_rows);

}  // namespace reelmesh::gpu

#pragma once
// A matrix product in plain C++, for processors other than x86: oneDNN 2.6 without the Arm Compute
// Library computes the last rows of a tile otherwise than its first ones, which gives them other
// bits.
#include <cstdint>

namespace reelmesh::ops {

/// dst[m, n] = src[m, k]·weights[k, n], or += if `adds`. Rows of src are `stride` elements apart,
/// others are dense. Each value is one chain of fused multiply-adds in the order of k: its bits
/// depend on nothing else.
void plain_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* src,
                   std::int64_t stride, const float* weights, float* dst, bool adds);

}  // namespace reelmesh::ops

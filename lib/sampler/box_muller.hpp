#pragma once
// The transform behind torch.randn for 16 and more values: uniform numbers in, normal numbers out.
#include <cstdint>

namespace reelmesh {

/// Turns `count` uniform numbers in [0, 1) (a multiple of 16) into normal ones in place. In each
/// block of 16, elements j and j + 8 are the two uniforms of a pair and become its cosine and its
/// sine half.
///
/// Source: PyTorch's float32 kernel for AVX2. Its logarithm, sine and cosine are the Cephes
/// single-precision polynomials, evaluated with fused multiply-adds; results are equal to the bit.
/// The same bits come out on every processor, with or without such instructions.
void box_muller(float* values, std::int64_t count);

/// The same for any processor, slow where fused multiply-adds are library calls; for tests.
void box_muller_portable(float* values, std::int64_t count);

}  // namespace reelmesh

#pragma once
// The Box-Muller transform of torch.randn for 16 or more values, from uniform to normal values.
#include <cstdint>

namespace reelmesh {

/// Values that PyTorch transforms together.
inline constexpr std::int64_t box_muller_block = 16;

/// Turns `count` (a multiple of 16) uniform values in [0, 1) into standard normal values in place.
/// In each block of 16, elements j and j + 8 are the two uniform values of a pair and are replaced
/// by its cosine and its sine value.
///
/// Source: PyTorch's float32 kernel for AVX2. Its logarithm, sine and cosine are the Cephes
/// single-precision polynomials, evaluated with fused multiply-adds; results are bitwise equal, on
/// every processor, with or without FMA instructions.
void box_muller(float* values, std::int64_t count);

/// The same compiled for any processor; slow if fused multiply-adds are library calls. For tests.
void box_muller_portable(float* values, std::int64_t count);

}  // namespace reelmesh

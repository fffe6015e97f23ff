#pragma once
// float32 → bfloat16 by AVX512_BF16's instruction, which takes 0.4 of the time of integer
// arithmetic in vectors.
#include <cstdint>

namespace reelmesh {

/// Converts `count` floats at `source`, which may be misaligned, to bfloat16 at `target`, with the
/// bits of BFloat16(x): 32 at a time by the instruction. What it cannot convert is left to
/// `in_vectors`, which takes the same arguments: all numbers on processors without it, the last
/// ones, and those beside a NaN or a subnormal number.
void narrow_by_instruction(const void* source, void* target, std::int64_t count,
                           void (*in_vectors)(const void*, void*, std::int64_t));

}  // namespace reelmesh

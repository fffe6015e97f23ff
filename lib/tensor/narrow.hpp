#pragma once
// float32 → bfloat16 by AVX512_BF16's instruction, which takes 0.4 of the time of vectors of
// integers.
#include <cstdint>

namespace reelmesh {

/// Converts the first of `count` floats at `source`, which may be misaligned, to bfloat16 at
/// `target`, with the bits of BFloat16(x). → how many: the multiple of 32 below; 0 on processors
/// without the instruction.
std::int64_t narrow_by_instruction(const void* source, void* target, std::int64_t count);

}  // namespace reelmesh

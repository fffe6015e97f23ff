#pragma once
// float32 → bfloat16 by AVX512_BF16's instruction, which takes 0.4 of the time of vectors of
// integers.
#include <cstdint>

namespace reelmesh {

/// Whether this processor has it.
bool narrows_by_instruction();

/// `count` floats at `source`, which may be misaligned, to bfloat16 at `target`, with the bits of
/// BFloat16(x). Only with narrows_by_instruction().
void narrow_by_instruction(const void* source, void* target, std::int64_t count);

}  // namespace reelmesh

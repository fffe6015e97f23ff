#include "tensor/narrow.hpp"

#ifdef __x86_64__
#include <immintrin.h>

#include <cstddef>

#include "tensor/dtype.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t together = 32, bytes = sizeof(float);

// Of vfpclassps: quiet and signaling NaNs, of which the instruction keeps bits, and subnormal
// numbers, which it takes as 0.
constexpr int special = 0x01 | 0x80 | 0x20;

// count: a multiple of 32.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]] void by_instruction(
    const std::byte* from, BFloat16* into, std::int64_t count,
    void (*in_vectors)(const void*, void*, std::int64_t)) {
  for (std::int64_t i = 0; i < count; i += together) {
    const std::byte* at = from + i * bytes;
    const __m512 low = _mm512_loadu_ps(at), high = _mm512_loadu_ps(at + sizeof(low));
    if ((_mm512_fpclass_ps_mask(low, special) | _mm512_fpclass_ps_mask(high, special)) != 0)
        [[unlikely]] {
      in_vectors(at, into + i, together);
    } else {
      _mm512_storeu_si512(into + i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }
}

}  // namespace

void narrow_by_instruction(const void* source, void* target, std::int64_t count,
                           void (*in_vectors)(const void*, void*, std::int64_t)) {
  static const bool has = __builtin_cpu_supports("avx512bf16") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const std::int64_t even = has ? count / together * together : 0;
  const auto* from = static_cast<const std::byte*>(source);
  auto* into = static_cast<BFloat16*>(target);
  if (even > 0) by_instruction(from, into, even, in_vectors);
  if (even < count) in_vectors(from + even * bytes, into + even, count - even);
}

}  // namespace reelmesh

#else

void reelmesh::narrow_by_instruction(const void* source, void* target, std::int64_t count,
                                     void (*in_vectors)(const void*, void*, std::int64_t)) {
  in_vectors(source, target, count);
}

#endif

#include "tensor/narrow.hpp"

#ifdef __x86_64__
#include <immintrin.h>

#include <cstddef>
#include <cstring>

#include "tensor/dtype.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t together = 32, bytes = sizeof(float);

void narrow_in_turn(const std::byte* from, BFloat16* into) {
  for (std::int64_t i = 0; i < together; ++i) {
    float x;
    std::memcpy(&x, from + i * bytes, sizeof(x));
    into[i] = BFloat16(x);
  }
}

// The instruction takes subnormal numbers as 0 and keeps bits of NaNs: 32 numbers with one of these
// are converted without it.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]] void narrow(const std::byte* from,
                                                                             BFloat16* into,
                                                                             std::int64_t count) {
  constexpr int nan = 0x81, subnormal = 0x20;
  for (std::int64_t i = 0; i < count; i += together) {
    const std::byte* at = from + i * bytes;
    const __m512 low = _mm512_loadu_ps(at), high = _mm512_loadu_ps(at + sizeof(low));
    const int others = _mm512_fpclass_ps_mask(low, nan | subnormal) |
                       _mm512_fpclass_ps_mask(high, nan | subnormal);
    if (others != 0) [[unlikely]] {
      narrow_in_turn(at, into + i);
    } else {
      _mm512_storeu_si512(into + i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }
}

}  // namespace

std::int64_t narrow_by_instruction(const void* source, void* target, std::int64_t count) {
  static const bool has = __builtin_cpu_supports("avx512bf16") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!has) return 0;
  const std::int64_t even = count / together * together;
  narrow(static_cast<const std::byte*>(source), static_cast<BFloat16*>(target), even);
  return even;
}

}  // namespace reelmesh

#else

std::int64_t reelmesh::narrow_by_instruction(const void*, void*, std::int64_t) { return 0; }

#endif

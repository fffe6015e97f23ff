#include "tensor/narrow.hpp"

#include <cstddef>
#include <cstring>

#include "base/error.hpp"
#include "tensor/dtype.hpp"

#ifdef __x86_64__
#include <immintrin.h>

#define REELMESH_AVX512_BF16 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]]
#endif

namespace reelmesh {
namespace {

void narrow_in_turn(const std::byte* from, BFloat16* into, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    float x;
    std::memcpy(&x, from + i * std::int64_t{sizeof(x)}, sizeof(x));
    into[i] = BFloat16(x);
  }
}

}  // namespace

#ifdef __x86_64__

bool narrows_by_instruction() {
  static const bool has = __builtin_cpu_supports("avx512bf16") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return has;
}

// The instruction takes subnormal numbers as 0 and keeps bits of NaNs: 32 numbers with one of these
// are converted without it.
REELMESH_AVX512_BF16 void narrow_by_instruction(const void* source, void* target,
                                                std::int64_t count) {
  constexpr std::int64_t width = 32, bytes = sizeof(float);
  constexpr int nan = 0x81, subnormal = 0x20;
  const auto* from = static_cast<const std::byte*>(source);
  auto* into = static_cast<BFloat16*>(target);
  const std::int64_t even = count / width * width;
  for (std::int64_t i = 0; i < even; i += width) {
    const std::byte* at = from + i * bytes;
    const __m512 low = _mm512_loadu_ps(at), high = _mm512_loadu_ps(at + sizeof(low));
    const int others = _mm512_fpclass_ps_mask(low, nan | subnormal) |
                       _mm512_fpclass_ps_mask(high, nan | subnormal);
    if (others != 0) [[unlikely]] {
      narrow_in_turn(at, into + i, width);
    } else {
      _mm512_storeu_si512(into + i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }
  narrow_in_turn(from + even * bytes, into + even, count - even);
}

#else

bool narrows_by_instruction() { return false; }

void narrow_by_instruction(const void*, void*, std::int64_t) {
  fail(Status::internal, "this processor has no AVX512_BF16");
}

#endif

}  // namespace reelmesh

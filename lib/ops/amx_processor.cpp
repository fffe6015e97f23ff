// AMX's kernels by the processor's instructions. Functions are compiled for them one by one, not
// the whole file, so that nothing else in it uses instructions that a processor may lack.
#include "base/error.hpp"
#include "ops/amx.hpp"
#include "ops/linear.hpp"
#include "ops/math.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <limits>

// What all processors with AMX have.
#define REELMESH_AVX512_OF_AMX "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma"
#if defined(__clang__)
#define REELMESH_AVX512 __attribute__((target(REELMESH_AVX512_OF_AMX)))
#else
// GCC 12 takes what its own header leaves undefined on purpose for uninitialised (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#define REELMESH_AVX512 __attribute__((target(REELMESH_AVX512_OF_AMX ",prefer-vector-width=512")))
#endif

namespace reelmesh::ops::amx {
namespace {

// Tile instructions, with the numbers of tile registers. The compiler keeps nothing in them.
template <int tile>
[[gnu::always_inline]] inline void load(const void* from) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(64L), "i"(tile) : "memory");
}
template <int tile>
[[gnu::always_inline]] inline void store(void* into) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(into), "r"(64L), "i"(tile) : "memory");
}
template <int tile>
[[gnu::always_inline]] inline void zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
template <int c, int a, int b>
[[gnu::always_inline]] inline void multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
}

void begin() {
  // All eight tiles have 16 rows of 64 bytes.
  struct alignas(64) Configuration {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t bytes_of_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Configuration configuration;
  asm volatile("ldtilecfg %0" ::"m"(configuration));
}

void end() { asm volatile("tilerelease"); }

REELMESH_AVX512 void copy_row(const BFloat16* from, std::int64_t steps, std::byte* to,
                              std::int64_t step_bytes) {
  for (std::int64_t s = 0; s < steps; ++s) {
    _mm512_store_si512(to + s * step_bytes, _mm512_loadu_si512(from + s * step_values));
  }
}

// 16 x 16 pairs.
REELMESH_AVX512 void transpose(const BFloat16* from, std::int64_t stride, std::byte* tile) {
  __m512i x[16], y[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = _mm512_loadu_si512(from + i * stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  // x[4·j + i]: rows 4·j to 4·j + 3 of columns i, i + 4, i + 8 and i + 12.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);      // columns i, i + 8
    y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);  // columns i + 4, i + 12
    y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
    y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm512_store_si512(tile + i * 64, _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88));
    _mm512_store_si512(tile + (i + 8) * 64, _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd));
    _mm512_store_si512(tile + (i + 4) * 64, _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88));
    _mm512_store_si512(tile + (i + 12) * 64, _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd));
  }
}

REELMESH_AVX512 void interleave(const BFloat16* from, std::int64_t stride, std::byte* tile) {
  const auto row = [&](std::int64_t k) REELMESH_AVX512 {
    return _mm512_cvtepu16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + k * stride)));
  };
  for (std::int64_t pair = 0; pair < step_values / 2; ++pair) {
    _mm512_store_si512(tile + pair * 64,
                       _mm512_or_si512(row(2 * pair), _mm512_slli_epi32(row(2 * pair + 1), 16)));
  }
}

constexpr std::int64_t lanes = 16;
constexpr std::int64_t tile_floats = tile_rows * lanes;

// The first `count` of 16 lanes.
REELMESH_AVX512 __mmask16 first(std::int64_t count) {
  return static_cast<__mmask16>(count >= lanes ? 0xffff : count <= 0 ? 0 : (1U << count) - 1U);
}

template <Activation activation>
REELMESH_AVX512 inline void finish_row(const Finish& x, std::int64_t r) {
  const __mmask16 low_mask = first(x.columns), high_mask = first(x.columns - lanes);
  const float* c = x.c + r * lanes;
  __m512 low = _mm512_load_ps(c), high = _mm512_setzero_ps();
  if (high_mask != 0) high = _mm512_load_ps(c + x.row_tiles * tile_floats);
  if (x.factors != nullptr) {
    const __m512 factor = _mm512_set1_ps(x.factors[r]);
    low = _mm512_mul_ps(low, factor);
    high = _mm512_mul_ps(high, factor);
  }
  if (x.bias != nullptr) {
    low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(low_mask, x.bias));
    high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(high_mask, x.bias + lanes));
  }
  if constexpr (activation != Activation::none) {
    alignas(64) float y[2 * lanes];
    _mm512_store_ps(y, low);
    _mm512_store_ps(y + lanes, high);
    for (float& value : y) value = activation == Activation::silu ? silu(value) : gelu_tanh(value);
    low = _mm512_load_ps(y);
    high = _mm512_load_ps(y + lanes);
  }
  const auto values = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  _mm512_mask_storeu_epi16(x.out + r * x.stride, __mmask32{high_mask} << lanes | low_mask, values);
}

template <Activation activation>
REELMESH_AVX512 void finish_rows(const Finish& x) {
  for (std::int64_t r = 0; r < x.rows; ++r) finish_row<activation>(x, r);
}

void finish(const Finish& x) {
  switch (x.activation) {
    case Activation::none:
      return finish_rows<Activation::none>(x);
    case Activation::silu:
      return finish_rows<Activation::silu>(x);
    case Activation::gelu_tanh:
      return finish_rows<Activation::gelu_tanh>(x);
  }
}

// Tiles 0 to 3: C; 4 and 5: A; 6 and 7: B.
// Each step's tiles take longer than the results of a row, which are computed meanwhile.
template <int rows, int columns, Activation activation>
REELMESH_AVX512 void multiply_tiles(const Product& x, const Finish* earlier) {
  std::int64_t row = 0;
  const std::int64_t last_row = earlier == nullptr ? 0 : earlier->rows;
  const std::byte *a = x.a, *b = x.b, *next = x.next;
  auto* results = reinterpret_cast<std::byte*>(x.c);
  if (x.add) {
    load<0>(results);
    if constexpr (rows == 2) load<1>(results + tile_bytes);
    if constexpr (columns == 2) load<2>(results + rows * tile_bytes);
    if constexpr (rows == 2 && columns == 2) load<3>(results + 3 * tile_bytes);
  } else {
    zero<0>(), zero<1>(), zero<2>(), zero<3>();
  }
  for (std::int64_t step = 0; step < x.steps; ++step) {
    load<4>(a);
    load<6>(b);
    multiply<0, 4, 6>();
    if constexpr (rows == 2) {
      load<5>(a + tile_bytes);
      multiply<1, 5, 6>();
    }
    if constexpr (columns == 2) {
      load<7>(b + tile_bytes);
      multiply<2, 4, 7>();
      if constexpr (rows == 2) multiply<3, 5, 7>();
    }
    for (std::int64_t line = 0; line < x.lines; ++line) {
      __builtin_prefetch(next + line * 64, 0, 2);
    }
    if (row < last_row) finish_row<activation>(*earlier, row++);
    a += rows * tile_bytes;
    b += columns * tile_bytes;
    next += columns * tile_bytes;
  }
  store<0>(results);
  if constexpr (rows == 2) store<1>(results + tile_bytes);
  if constexpr (columns == 2) store<2>(results + rows * tile_bytes);
  if constexpr (rows == 2 && columns == 2) store<3>(results + 3 * tile_bytes);
  for (; row < last_row; ++row) finish_row<activation>(*earlier, row);
}

template <int rows, int columns>
void product_and(const Product& x, const Finish* earlier) {
  if (earlier != nullptr && earlier->activation == Activation::silu) {
    return multiply_tiles<rows, columns, Activation::silu>(x, earlier);
  }
  if (earlier != nullptr && earlier->activation == Activation::gelu_tanh) {
    return multiply_tiles<rows, columns, Activation::gelu_tanh>(x, earlier);
  }
  multiply_tiles<rows, columns, Activation::none>(x, earlier);
}

void product(const Product& x, const Finish* earlier) {
  if (x.row_tiles == 2 && x.column_tiles == 2) return product_and<2, 2>(x, earlier);
  if (x.row_tiles == 2) return product_and<2, 1>(x, earlier);
  if (x.column_tiles == 2) return product_and<1, 2>(x, earlier);
  product_and<1, 1>(x, earlier);
}

// 2^x for x ≤ 0 with a relative error of at most 2.9e-6, a hundredth of bfloat16's rounding, and 1
// at 0. Among polynomials of degree 4 that are 1 at 0, this one has the smallest maximum relative
// error on [0, 1].
REELMESH_AVX512 inline __m512 power_of_two(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0.0134266855F);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.0522424722F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.241280206F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693044845F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(p, x);
}

// One row. Even and odd tiles of keys have maxima and sums of their own.
template <std::int64_t row_tiles>
REELMESH_AVX512 inline void softmax_row(const Softmax& x, std::int64_t r) {
  constexpr std::int64_t tile_stride = row_tiles * tile_floats;
  float* scores = x.scores + r * lanes;
  const std::int64_t tiles = (x.keys + lanes - 1) / lanes, pairs = tiles / 2;
  float scale = x.scale;
  if (x.bias != nullptr) {
    const float* bias = x.bias + r * x.bias_stride;
    for (std::int64_t i = 0; i < tiles; ++i) {
      const __m512 scaled =
          _mm512_mul_ps(_mm512_maskz_loadu_ps(first(x.keys - i * lanes), bias + i * lanes),
                        _mm512_set1_ps(1.44269504088896341F));
      float* at = scores + i * tile_stride;
      _mm512_store_ps(at, _mm512_fmadd_ps(_mm512_load_ps(at), _mm512_set1_ps(scale), scaled));
    }
    scale = 1;
  }
  const __m512 nothing = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  if (x.keys % lanes != 0) {  // padding has no weight
    float* last = scores + (tiles - 1) * tile_stride;
    _mm512_store_ps(last, _mm512_mask_load_ps(nothing, first(x.keys % lanes), last));
  }
  __m512 top0 = nothing, top1 = nothing;
  const float* at = scores;
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < pairs; ++i, at += 2 * tile_stride) {
    top0 = _mm512_max_ps(top0, _mm512_load_ps(at));
    top1 = _mm512_max_ps(top1, _mm512_load_ps(at + tile_stride));
  }
  if (tiles % 2 != 0) top0 = _mm512_max_ps(top0, _mm512_load_ps(at));
  const float top = _mm512_reduce_max_ps(_mm512_max_ps(top0, top1)) * scale;
  if (top > x.largest[r]) {
    const float factor = _mm512_cvtss_f32(power_of_two(_mm512_set1_ps(x.largest[r] - top)));
    x.largest[r] = top;
    x.sum[r] *= factor;
    for (std::int64_t c = 0; c < x.channel_tiles; ++c) {
      float* total = x.totals + c * tile_stride + r * lanes;
      _mm512_store_ps(total, _mm512_mul_ps(_mm512_load_ps(total), _mm512_set1_ps(factor)));
    }
  }
  const __m512 factors = _mm512_set1_ps(scale), largest = _mm512_set1_ps(x.largest[r]);
  const auto weight = [&](const float* of) REELMESH_AVX512 {
    return power_of_two(_mm512_fmsub_ps(_mm512_load_ps(of), factors, largest));
  };
  __m512 even = _mm512_setzero_ps(), odd = even;
  std::byte* weights = x.weights + r * 64;
  at = scores;
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < pairs; ++i, at += 2 * tile_stride) {
    const __m512 w0 = weight(at), w1 = weight(at + tile_stride);
    even = _mm512_add_ps(even, w0);
    odd = _mm512_add_ps(odd, w1);
    _mm512_store_si512(weights, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(w1, w0)));
    weights += row_tiles * tile_bytes;
  }
  if (tiles % 2 != 0) {
    const __m512 w0 = weight(at);
    even = _mm512_add_ps(even, w0);
    _mm512_store_si512(weights,
                       reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_setzero_ps(), w0)));
  }
  x.sum[r] += _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

REELMESH_AVX512 void softmax(const Softmax& x) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    x.row_tiles == 2 ? softmax_row<2>(x, r) : softmax_row<1>(x, r);
  }
  const std::int64_t steps = step_count(x.keys);
  for (std::int64_t r = x.rows; r < x.row_tiles * tile_rows; ++r) {
    for (std::int64_t s = 0; s < steps; ++s) {
      _mm512_store_si512(x.weights + s * x.row_tiles * tile_bytes + r * 64, _mm512_setzero_si512());
    }
  }
}

}  // namespace

bool permitted() {
  static const bool asked = [] {
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM
    return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return asked;
}

const Kernels& processor_kernels() {
  static constexpr Kernels all{begin,     end,        product, copy_row,
                               transpose, interleave, finish,  softmax};
  return all;
}

}  // namespace reelmesh::ops::amx

#else

namespace reelmesh::ops::amx {

bool permitted() { return false; }
const Kernels& processor_kernels() { fail(Status::internal, "AMX on another kind of processor"); }

}  // namespace reelmesh::ops::amx

#endif

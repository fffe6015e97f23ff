// What AMX's kernels compute, in plain C++ with the same order of sums.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/amx.hpp"
#include "ops/linear.hpp"
#include "ops/math.hpp"

namespace reelmesh::ops::amx {
namespace {

constexpr std::int64_t tile_floats = tile_rows * tile_rows;

void nothing() {}

// TDPBF16PS: within a step, even and odd values have sums of their own.
void add_product(const BFloat16* a, const BFloat16* b, float* c) {
  for (std::int64_t m = 0; m < tile_rows; ++m) {
    for (std::int64_t n = 0; n < tile_rows; ++n) {
      float sums[2] = {};
      for (std::int64_t k = 0; k < step_values; ++k) {
        sums[k % 2] =
            std::fma(static_cast<float>(a[m * step_values + k]),
                     static_cast<float>(b[(k / 2 * tile_rows + n) * 2 + k % 2]), sums[k % 2]);
      }
      c[m * tile_rows + n] += sums[0] + sums[1];
    }
  }
}

void finish(const Finish& x) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t n = 0; n < x.columns; ++n) {
      float y = x.c[n / tile_rows * x.row_tiles * tile_floats + r * tile_rows + n % tile_rows];
      if (x.factors != nullptr) y *= x.factors[r];
      if (x.bias != nullptr) y += x.bias[n];
      if (x.activation == Activation::silu) y = silu(y);
      if (x.activation == Activation::gelu_tanh) y = gelu_tanh(y);
      x.out[r * x.stride + n] = BFloat16(y);
    }
  }
}

void product(const Product& product, const Finish* earlier) {
  if (earlier != nullptr) finish(*earlier);
  const auto& [a, row_tiles, b, column_tiles, steps, c, add, next, lines] = product;
  if (!add) std::fill_n(c, row_tiles * column_tiles * tile_floats, 0.0F);
  const auto* left = reinterpret_cast<const BFloat16*>(a);
  const auto* right = reinterpret_cast<const BFloat16*>(b);
  constexpr std::int64_t tile = tile_bytes / std::int64_t{sizeof(BFloat16)};
  for (std::int64_t s = 0; s < steps; ++s) {
    for (std::int64_t column = 0; column < column_tiles; ++column) {
      for (std::int64_t row = 0; row < row_tiles; ++row) {
        add_product(left + (s * row_tiles + row) * tile, right + (s * column_tiles + column) * tile,
                    c + (column * row_tiles + row) * tile_floats);
      }
    }
  }
}

void copy_row(const BFloat16* from, std::int64_t steps, std::byte* to, std::int64_t step_bytes) {
  for (std::int64_t s = 0; s < steps; ++s) {
    std::copy_n(from + s * step_values, step_values,
                reinterpret_cast<BFloat16*>(to + s * step_bytes));
  }
}

void transpose(const BFloat16* from, std::int64_t stride, std::byte* tile) {
  auto* into = reinterpret_cast<BFloat16*>(tile);
  for (std::int64_t n = 0; n < tile_rows; ++n) {
    for (std::int64_t k = 0; k < step_values; ++k) {
      into[(k / 2 * tile_rows + n) * 2 + k % 2] = from[n * stride + k];
    }
  }
}

void interleave(const BFloat16* from, std::int64_t stride, std::byte* tile) {
  auto* into = reinterpret_cast<BFloat16*>(tile);
  for (std::int64_t k = 0; k < step_values; ++k) {
    for (std::int64_t n = 0; n < tile_rows; ++n) {
      into[(k / 2 * tile_rows + n) * 2 + k % 2] = from[k * stride + n];
    }
  }
}

// 2^x for x ≤ 0, as the processor's kernel computes it.
float power_of_two(float x) {
  if (x == -std::numeric_limits<float>::infinity()) return 0;
  const float below = std::floor(x);
  // VREDUCEPS rounds the difference downwards too, so that it is less than 1.
  const double exact = static_cast<double>(x) - static_cast<double>(below);
  auto f = static_cast<float>(exact);
  if (static_cast<double>(f) > exact || f == 1.0F) f = std::nextafter(f, 0.0F);
  float p = 0.0134266855F;
  p = std::fma(p, f, 0.0522424722F);
  p = std::fma(p, f, 0.241280206F);
  p = std::fma(p, f, 0.693044845F);
  p = std::fma(p, f, 1.0F);
  return std::ldexp(p, static_cast<int>(std::max(below, -1000.0F)));
}

void softmax(const Softmax& x) {
  constexpr std::int64_t lanes = tile_rows;
  constexpr float log2_e = 1.44269504088896341F;
  const std::int64_t width = (x.keys + step_values - 1) / step_values * step_values;
  const std::int64_t tile_stride = x.row_tiles * tile_floats;
  auto* weights = reinterpret_cast<BFloat16*>(x.weights);
  for (std::int64_t r = 0; r < x.row_tiles * tile_rows; ++r) {
    const auto into = [&](std::int64_t k) -> BFloat16& {
      return weights[((k / step_values * x.row_tiles + r / tile_rows) * tile_rows + r % tile_rows) *
                         step_values +
                     k % step_values];
    };
    if (r >= x.rows) {
      for (std::int64_t k = 0; k < width; ++k) into(k) = BFloat16(0.0F);
      continue;
    }
    const auto score = [&](std::int64_t k) -> float& {
      return x.scores[k / lanes * tile_stride + r * lanes + k % lanes];
    };
    float scale = x.scale;
    if (x.bias != nullptr) {
      for (std::int64_t k = 0; k < x.keys; ++k) {
        score(k) = std::fma(score(k), scale, x.bias[r * x.bias_stride + k] * log2_e);
      }
      scale = 1;
    }
    float top = -std::numeric_limits<float>::infinity();
    for (std::int64_t k = 0; k < x.keys; ++k) top = std::max(top, score(k));
    top *= scale;
    if (top > x.largest[r]) {
      const float factor = power_of_two(x.largest[r] - top);
      x.largest[r] = top;
      x.sum[r] *= factor;
      for (std::int64_t c = 0; c < x.channel_tiles; ++c) {
        for (std::int64_t i = 0; i < lanes; ++i)
          x.totals[c * tile_stride + r * lanes + i] *= factor;
      }
    }
    // Even and odd vectors of keys have sums of their own.
    float sums[2][lanes] = {};
    for (std::int64_t k = 0; k < width; ++k) {
      const float weight =
          k < x.keys ? power_of_two(std::fma(score(k), scale, -x.largest[r])) : 0.0F;
      sums[k / lanes % 2][k % lanes] += weight;
      into(k) = BFloat16(weight);
    }
    for (std::int64_t i = 0; i < lanes; ++i) sums[0][i] += sums[1][i];
    for (std::int64_t half = lanes / 2; half > 0; half /= 2) {
      for (std::int64_t i = 0; i < half; ++i) sums[0][i] += sums[0][i + half];
    }
    x.sum[r] += sums[0][0];
  }
}

}  // namespace

const Kernels& plain_kernels() {
  static constexpr Kernels all{nothing,   nothing,    product, copy_row,
                               transpose, interleave, finish,  softmax};
  return all;
}

}  // namespace reelmesh::ops::amx

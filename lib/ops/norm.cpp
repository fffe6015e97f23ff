#include "ops/norm.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/cuda/ops.hpp"
#include "ops/index_math.hpp"
#include "ops/math.hpp"
#include "ops/norm_gradients.hpp"
#include "ops/onednn.hpp"
#include "ops/operation.hpp"
#include "ops/parallel.hpp"
#include "ops/row_floats.hpp"
#include "ops/row_sums.hpp"
#include "tensor/convert.hpp"
#include "tensor/dispatch.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::ops {
namespace {

// Rows of n values go from x to y, which may be the same.

// bias: null for a root-mean-square norm.
[[gnu::always_inline]] inline void normalise(const float* x, float* y, std::int64_t n,
                                             const float* weight, const float* bias, float eps) {
  const auto count = static_cast<float>(n);
  if (bias == nullptr) {
    const float rstd = 1.0F / std::sqrt(sum_of_squares(x, n, 0.0F) / count + eps);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * rstd * weight[i];
    return;
  }
  const float mean = vector_sum(x, n) / count;
  const float rstd = 1.0F / std::sqrt(sum_of_squares(x, n, mean) / count + eps);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
}

REELMESH_CLONES void layer_norm_row(const float* x, float* y, std::int64_t n, const float* weight,
                                    const float* bias, float eps) {
  normalise(x, y, n, weight, bias, eps);
}

// y = norm(x)·(1 + scale) + shift.
REELMESH_CLONES void modulated_norm_row(const float* x, float* y, std::int64_t n,
                                        const float* weight, const float* bias, float eps,
                                        const float* scale, const float* shift) {
  const auto count = static_cast<float>(n);
  const float mean = vector_sum(x, n) / count;
  const float rstd = 1.0F / std::sqrt(sum_of_squares(x, n, mean) / count + eps);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = ((x[i] - mean) * rstd * weight[i] + bias[i]) * (1.0F + scale[i]) + shift[i];
  }
}

REELMESH_CLONES void rms_norm_row(const float* x, float* y, std::int64_t n, const float* weight,
                                  float eps) {
  normalise(x, y, n, weight, nullptr, eps);
}

// The sums of |x − before| and of |before|; overwrites both.
REELMESH_CLONES void change_sums_row(float* x, float* before, std::int64_t n, float* sums) {
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = std::abs(x[i] - before[i]);
    before[i] = std::abs(before[i]);
  }
  sums[0] = vector_sum(x, n);
  sums[1] = vector_sum(before, n);
}

// Calls f(row index, x, y) for each row of x, as floats, whose results go to y: a row of out.
template <class F>
void for_each_row(const Tensor& x, Tensor& out, F&& f) {
  if (x.empty()) return;
  const std::int64_t n = x.shape().back();
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(x.numel() / n, 32, [&](std::int64_t row) {
      with_floats(x.data<T>() + row * n, out.data<T>() + row * n, n,
                  [&](const float* from, float* into) { f(row, from, into); });
    });
  });
}

// Elements by which the chunks of a token's modulation come later than those of most tokens.
std::int64_t chunk_offset(const FirstTokens& first, std::int64_t token, std::int64_t n) {
  return token < first.count ? first.chunks_later * n : 0;
}

namespace cpu {

Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const Tensor w = weight.to(DType::float32);
  const std::int64_t n = x.shape().back();
  for_each_row(x, out, [&](std::int64_t, const float* from, float* into) {
    rms_norm_row(from, into, n, w.data<float>(), eps);
  });
  return out;
}

Tensor change_sums(const Tensor& x, const Tensor& before) {
  const std::int64_t n = x.shape().back();
  Tensor sums = Tensor::empty({x.numel() / n, 2}, DType::float32);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(sums.shape(0), 32, [&](std::int64_t row) {
      float* values = row_scratch(2 * n);
      convert(x.data<T>() + row * n, values, n);
      convert(before.data<T>() + row * n, values + n, n);
      change_sums_row(values, values + n, n, sums.data<float>() + 2 * row);
    });
  });
  return sums;
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const Tensor w = weight.to(DType::float32), b = bias.to(DType::float32);
  for_each_row(x, out, [&](std::int64_t, const float* from, float* into) {
    layer_norm_row(from, into, x.shape().back(), w.data<float>(), b.data<float>(), eps);
  });
  return out;
}

void modulated_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                          const Modulation& modulation, Tensor& out) {
  const std::int64_t batch = x.shape(1), n = x.shape(2);
  const std::int64_t rows = modulation.table.shape(0), chunks = modulation.table.shape(1);
  const Tensor w = weight.to(DType::float32), b = bias.to(DType::float32);
  const Tensor table = modulation.table.to(DType::float32);
  for_each_row(x, out, [&](std::int64_t row, const float* from, float* into) {
    const float* m = table.data<float>() + row % batch % rows * chunks +
                     chunk_offset(modulation.first, row / batch, n);
    modulated_norm_row(from, into, n, w.data<float>(), b.data<float>(), eps,
                       m + modulation.scale * n, m + modulation.shift * n);
  });
}

REELMESH_CLONES void add_products(float* x, const float* factor, const float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] + factor[i] * y[i];
}

void add_gated(Tensor& x, const Tensor& y, const Tensor& table, int gate,
               const FirstTokens& first) {
  const std::int64_t batch = x.shape(1), n = x.shape(2);
  const std::int64_t rows = table.shape(0), chunks = table.shape(1);
  const Tensor gates = table.to(DType::float32);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(x.numel() / n, 32, [&](std::int64_t row) {
      const float* g = gates.data<float>() + row % batch % rows * chunks + gate * n +
                       chunk_offset(first, row / batch, n);
      T* into = x.data<T>() + row * n;
      const T* from = y.data<T>() + row * n;
      if constexpr (std::is_same_v<T, float>) {
        add_products(into, g, from, n);
      } else {
        float* values = row_scratch(2 * n);
        convert(into, values, n);
        convert(from, values + n, n);
        add_products(values, g, values + n, n);
        convert(values, into, n);
      }
    });
  });
}

// rotate_pair() of each pair.
[[gnu::always_inline]] inline void rotate(float* x, std::int64_t n, const float* c,
                                          const float* s) {
  constexpr HalfLanes signs = {-1, 1, -1, 1, -1, 1, -1, 1};
  constexpr std::int64_t width = lanes / 2;
  const std::int64_t even = n / width * width;
  for (std::int64_t i = 0; i < even; i += width) {
    HalfLanes v, cosines, sines;
    std::memcpy(&v, x + i, sizeof(v));
    std::memcpy(&cosines, c + i, sizeof(v));
    std::memcpy(&sines, s + i, sizeof(v));
    const HalfLanes other = __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
    v = v * cosines + other * (sines * signs);
    std::memcpy(x + i, &v, sizeof(v));
  }
  for (std::int64_t i = even; i < n; i += 2) rotate_pair(x[i], x[i + 1], c + i, s + i);
}

// The heads of a token, n values each. bias, c, s: or null.
REELMESH_CLONES void normalise_heads(float* x, std::int64_t heads, std::int64_t n,
                                     const float* weight, const float* bias, float eps,
                                     const float* c, const float* s) {
  for (std::int64_t head = 0; head < heads; ++head) {
    normalise(x + head * n, x + head * n, n, weight, bias, eps);
    if (c != nullptr) rotate(x + head * n, n, c, s);
  }
}

void normalise_and_rotate(Tensor& x, const HeadNorm& norm, const Tensor& cosines,
                          const Tensor& sines, std::int64_t unrotated) {
  const std::int64_t batch = x.shape(1), parts = x.shape(2), heads = x.shape(3), n = x.shape(4);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(x.shape(0), 4, [&](std::int64_t token) {
      const bool rotated = !cosines.empty() && token >= unrotated;
      const float* c = rotated ? cosines.data<float>() + (token - unrotated) * n : nullptr;
      const float* s = rotated ? sines.data<float>() + (token - unrotated) * n : nullptr;
      for (std::int64_t item = 0; item < batch; ++item) {
        T* y = x.data<T>() + (token * batch + item) * parts * heads * n;
        with_floats(y, y, heads * n, [&](const float*, float* values) {
          normalise_heads(values, heads, n, norm.weight.data<float>(),
                          norm.bias.empty() ? nullptr : norm.bias.data<float>(), norm.eps, c, s);
        });
      }
    });
  });
}

// One norm over all heads of a token. c, s: or null.
REELMESH_CLONES void normalise_together(float* x, std::int64_t heads, std::int64_t n,
                                        const float* weight, float eps, const float* c,
                                        const float* s) {
  normalise(x, x, heads * n, weight, nullptr, eps);
  if (c == nullptr) return;
  for (std::int64_t head = 0; head < heads; ++head) rotate(x + head * n, n, c, s);
}

void norm_together_and_rotate(Tensor& x, const Tensor& weight, float eps, const Tensor& cosines,
                              const Tensor& sines) {
  const std::int64_t batch = x.shape(1), parts = x.shape(2), heads = x.shape(3), n = x.shape(4);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(x.shape(0), 4, [&](std::int64_t token) {
      const float* c = cosines.empty() ? nullptr : cosines.data<float>() + token * n;
      const float* s = cosines.empty() ? nullptr : sines.data<float>() + token * n;
      for (std::int64_t item = 0; item < batch; ++item) {
        T* y = x.data<T>() + (token * batch + item) * parts * heads * n;
        with_floats(y, y, heads * n, [&](const float*, float* values) {
          normalise_together(values, heads, n, weight.data<float>(), eps, c, s);
        });
      }
    });
  });
}

// Adds the channels of pixels, and their squares, to these sums.
REELMESH_CLONES void add_pixels(const float* x, std::int64_t pixels, std::int64_t channels,
                                double* sums, double* squares) {
  constexpr std::int64_t width = 4, parts = 4, block = width * parts;
  using Floats [[gnu::vector_size(width * sizeof(float))]] = float;
  using Doubles [[gnu::vector_size(width * sizeof(double))]] = double;
  const std::int64_t even = channels / block * block;
  for (std::int64_t first = 0; first < even; first += block) {
    Doubles sum[parts], square[parts];  // in registers
#pragma GCC unroll 4
    for (std::int64_t part = 0; part < parts; ++part) {
      std::memcpy(&sum[part], sums + first + part * width, sizeof(Doubles));
      std::memcpy(&square[part], squares + first + part * width, sizeof(Doubles));
    }
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
      // What follows in the row belongs to the next cell, which is read after other rows.
      __builtin_prefetch(x + (pixels + pixel) * channels + first);
#pragma GCC unroll 4
      for (std::int64_t part = 0; part < parts; ++part) {
        Floats narrow;
        std::memcpy(&narrow, x + pixel * channels + first + part * width, sizeof(narrow));
        const Doubles value = __builtin_convertvector(narrow, Doubles);
        sum[part] += value;
        square[part] += value * value;
      }
    }
#pragma GCC unroll 4
    for (std::int64_t part = 0; part < parts; ++part) {
      std::memcpy(sums + first + part * width, &sum[part], sizeof(Doubles));
      std::memcpy(squares + first + part * width, &square[part], sizeof(Doubles));
    }
  }
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (std::int64_t i = even; i < channels; ++i) {
      const double value = x[pixel * channels + i];
      sums[i] += value;
      squares[i] += value * value;
    }
  }
}

// Members of ExactSum for each group as doubles, for vector instructions.
struct GroupSums {
  explicit GroupSums(std::size_t groups) : high(groups), middle(groups), low(groups) {}
  std::vector<double> high, middle, low;
};

// Adds the sum of each group of `size` channels to that of the group; overwrites `sums`.
REELMESH_CLONES void add_groups(double* sums, std::int64_t size, std::int64_t groups, double* high,
                                double* middle, double* low) {
  for (std::int64_t group = 0; group < groups; ++group) {
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) sum += sums[group * size + i];
    sums[group] = sum;
  }
#pragma GCC ivdep
  for (std::int64_t group = 0; group < groups; ++group) {
    const ExactSum::Parts parts = ExactSum::parts_of(sums[group]);
    high[group] += parts.high;
    middle[group] += parts.middle;
    low[group] += parts.low;
  }
}

std::vector<ExactSum> group_sums(const Tensor& x, std::int64_t groups, std::int64_t cell) {
  const std::int64_t frames = x.shape(0), rows = x.shape(1), columns = x.shape(2);
  const std::int64_t channels = x.shape(3), size = channels / groups;
  const auto count = static_cast<std::size_t>(2 * groups);
  std::vector<ExactSum> result(count);
  const std::int64_t lines = rows / cell;
  expect(columns / cell <= ExactSum::max_terms_as_doubles, "group sums of {} cells in a row",
         columns / cell);
  std::vector<ExactSum> of_lines(count * static_cast<std::size_t>(lines));
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(lines, 1, [&](std::int64_t line) {
      std::vector<double> sums(static_cast<std::size_t>(2 * channels));
      GroupSums of_line(count);
      for (std::int64_t left = 0; left < columns; left += cell) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::int64_t i = 0; i < frames * cell; ++i) {
          const std::int64_t row = i / cell * rows + line * cell + i % cell;
          const T* pixels = x.data<T>() + (row * columns + left) * channels;
          add_pixels(as_floats(pixels, cell * channels), cell, channels, sums.data(),
                     sums.data() + channels);
        }
        add_groups(sums.data(), size, std::ssize(of_line.high), of_line.high.data(),
                   of_line.middle.data(), of_line.low.data());
      }
      for (std::size_t i = 0; i < count; ++i) {
        of_lines[static_cast<std::size_t>(line) * count + i].add(
            ExactSum::Parts{of_line.high[i], of_line.middle[i], of_line.low[i]});
      }
    });
  });
  for (std::size_t i = 0; i < of_lines.size(); ++i) result[i % count].add(of_lines[i]);
  return result;
}

// Pixels of n channels with the same scale and shift.
REELMESH_CLONES void spatial_norm_pixels(const float* x, float* y, std::int64_t pixels,
                                         std::int64_t n, const float* factor, const float* offset,
                                         const float* scale, const float* shift) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, x += n, y += n) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      y[i] = silu((x[i] * factor[i] + offset[i]) * scale[i] + shift[i]);
    }
  }
}

void spatial_norm_silu(const Tensor& x, const SpatialNorm& norm, Tensor& out) {
  const std::int64_t frames = x.shape(0), rows = x.shape(1), columns = x.shape(2);
  const std::int64_t n = x.shape(3);
  const std::int64_t latent_rows = norm.scale.shape(1), latent_columns = norm.scale.shape(2);
  const ChannelFactors channels = channel_factors(norm.statistics, norm.weight, norm.bias);
  const float *factors = channels.factor.data(), *offsets = channels.offset.data();
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(frames * rows, 1, [&](std::int64_t task) {
      const std::int64_t frame = task / rows, row = task % rows;
      const std::int64_t latent_row = row * latent_rows / rows;
      auto* modulation =
          static_cast<float*>(thread_scratch(5, static_cast<std::size_t>(2 * n) * sizeof(float)));
      const std::int64_t latent_row_at =
          (norm.latent_frame[static_cast<std::size_t>(frame)] * latent_rows + latent_row) *
          latent_columns;
      for (std::int64_t column = 0; column < columns;) {
        const std::int64_t latent_column = column * latent_columns / columns;
        // The first column of the next latent one, by the same rounding.
        const std::int64_t next =
            ((latent_column + 1) * columns + latent_columns - 1) / latent_columns;
        const std::int64_t at = (task * columns + column) * n, pixels = next - column;
        const std::int64_t latent = (latent_row_at + latent_column) * n;
        convert(norm.scale.data<T>() + latent, modulation, n);
        convert(norm.shift.data<T>() + latent, modulation + n, n);
        with_floats(x.data<T>() + at, out.data<T>() + at, pixels * n,
                    [&](const float* from, float* into) {
                      spatial_norm_pixels(from, into, pixels, n, factors, offsets, modulation,
                                          modulation + n);
                    });
        column = next;
      }
    });
  });
}

}  // namespace cpu
}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps) {
  const Operation operation(trace::spans::norm,
                            {norm_flops::rms * x.numel(), 2 * x.bytes() + weight.bytes()});
  return dispatch(
      x.device(), [&] { return gpu::rms_norm(x, weight, eps); },
      [&] { return cpu::rms_norm(x, weight, eps); },
      [&] { return Tensor::empty(x.shape(), x.dtype(), x.device()); });
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps) {
  const Operation operation(trace::spans::norm, {norm_flops::layer * x.numel(),
                                                 2 * x.bytes() + weight.bytes() + bias.bytes()});
  Tensor out = dispatch(
      x.device(), [&] { return gpu::layer_norm(x, weight, bias, eps); },
      [&] { return cpu::layer_norm(x, weight, bias, eps); },
      [&] { return Tensor::empty(x.shape(), x.dtype(), x.device()); });
  record_layer_norm(x, weight, bias, eps, {}, out);
  return out;
}

Tensor change_sums(const Tensor& x, const Tensor& before) {
  expect(x.shape() == before.shape() && x.dtype() == before.dtype(), "the change from {} to {}",
         before.shape(), x.shape());
  const Operation operation(trace::spans::norm, {4 * x.numel(), 2 * x.bytes()});
  return dispatch(
      x.device(), [&] { return gpu::change_sums(x, before); },
      [&] { return cpu::change_sums(x, before); },
      [&] {
        return Tensor::empty({x.numel() / x.shape().back(), 2}, DType::float32, x.device());
      });
}

namespace {

// Checks the arguments of a modulated layer norm.
Work norm_work(const Tensor& x, const Tensor& weight, const Tensor& bias,
               const Modulation& modulation) {
  const std::int64_t batch = x.shape(1), n = x.shape(2);
  const std::int64_t rows = modulation.table.shape(0), chunks = modulation.table.shape(1);
  const FirstTokens& first = modulation.first;
  const int last_chunk = std::max(modulation.shift, modulation.scale) + first.chunks_later;
  expect((rows == 1 || rows == batch) && chunks >= (last_chunk + 1) * n,
         "modulation table {} for {}", modulation.table.shape(), x.shape());
  // Of the table, two chunks are read, or four if the first tokens have their own.
  const std::int64_t read = (first.count > 0 ? 4 : 2) * rows * n;
  return {(norm_flops::layer + norm_flops::modulate) * x.numel(),
          2 * x.bytes() + read * size_of(modulation.table.dtype()) + weight.bytes() + bias.bytes()};
}

}  // namespace

void modulated_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                          const Modulation& modulation, Tensor& out) {
  const Operation operation(trace::spans::norm, norm_work(x, weight, bias, modulation));
  dispatch(
      x.device(), [&] { gpu::modulated_layer_norm(x, weight, bias, eps, modulation, out); },
      [&] { cpu::modulated_layer_norm(x, weight, bias, eps, modulation, out); });
  record_layer_norm(x, weight, bias, eps, modulation, out);
}

void add_gated(Tensor& x, const Tensor& y, const Tensor& table, int gate,
               const FirstTokens& first) {
  Tape* tape = Tape::recording();
  const bool is_skipped = tape != nullptr && tape->skips_sum();
  if (!x.empty() && !is_skipped) {
    note_moved(3 * x.bytes());
    if (tape != nullptr) Tape::own(x);
    dispatch(
        x.device(), [&] { gpu::add_gated(x, y, table, gate, first); },
        [&] { cpu::add_gated(x, y, table, gate, first); });
  }
  record_gate(y, {table, gate, first}, x);
}

void add_gated_and_norm(Tensor& x, const Tensor& y, const Gate& gate, const Tensor& weight,
                        const Tensor& bias, float eps, const Modulation& modulation, Tensor& out) {
  const auto in_turn = [&] {
    add_gated(x, y, gate.table, gate.chunk, gate.first);
    modulated_layer_norm(x, weight, bias, eps, modulation, out);
  };
  dispatch(
      x.device(),
      [&] {
        const Operation operation(trace::spans::norm, norm_work(x, weight, bias, modulation));
        if (Tape::recording() != nullptr) Tape::own(x);
        gpu::add_gated_and_norm(x, y, gate, weight, bias, eps, modulation, out);
        record_gate(y, gate, x);
        record_layer_norm(x, weight, bias, eps, modulation, out);
      },
      in_turn, in_turn);
}

void normalise_and_rotate(Tensor& x, const HeadNorm& norm, const Tensor& cosines,
                          const Tensor& sines, std::int64_t unrotated) {
  if (x.empty()) return record_head_norm({}, norm, cosines, sines, unrotated, x);
  Tensor before;
  if (Tape::recording() != nullptr) {
    Tape::own(x);
    if (Tape::of(x, norm.weight, norm.bias)) before = first_part(x);
  }
  expect(cosines.empty() || (cosines.shape() == Shape{x.shape(0) - unrotated, x.shape(4)} &&
                             sines.shape() == cosines.shape()),
         "rotary table {} for {}", cosines.shape(), x.shape());
  const std::int64_t of_token = x.numel() / x.shape(0) / x.shape(2);  // elements of part 0
  const std::int64_t rotated = cosines.empty() ? 0 : x.shape(0) - unrotated;
  const Operation operation(
      trace::spans::norm, {((norm.bias.empty() ? norm_flops::rms : norm_flops::layer) * x.shape(0) +
                            norm_flops::rotate * rotated) *
                               of_token,
                           2 * x.bytes() / x.shape(2) + norm.weight.bytes() + norm.bias.bytes() +
                               cosines.bytes() + sines.bytes()});
  dispatch(
      x.device(), [&] { gpu::normalise_and_rotate(x, norm, cosines, sines, unrotated); },
      [&] { cpu::normalise_and_rotate(x, norm, cosines, sines, unrotated); });
  record_head_norm(before, norm, cosines, sines, unrotated, x);
}

void norm_together_and_rotate(Tensor& x, const Tensor& weight, float eps, const Tensor& cosines,
                              const Tensor& sines) {
  const Shape shape = x.shape();
  const Shape as_one_head{shape[0], shape[1], shape[2], 1, shape[3] * shape[4]};
  const auto record = [&](const Tensor& before) {
    Tensor one_head = x.reshape(as_one_head);
    record_head_norm(before, {weight, {}, eps}, cosines, sines, 0, one_head);
    x = one_head.reshape(shape);
  };
  if (x.empty()) return record({});
  Tensor before;
  if (Tape::recording() != nullptr) {
    Tape::own(x);
    if (Tape::of(x, weight)) before = first_part(x.reshape(as_one_head));
  }
  expect(weight.shape() == Shape{x.shape(3) * x.shape(4)} &&
             (cosines.empty() || (cosines.shape() == Shape{x.shape(0), x.shape(4)} &&
                                  sines.shape() == cosines.shape())),
         "weight {} and rotary table {} for {}", weight.shape(), cosines.shape(), x.shape());
  const std::int64_t elements = x.numel() / x.shape(2);  // of part 0
  const Operation operation(
      trace::spans::norm,
      {(norm_flops::rms + (cosines.empty() ? 0 : norm_flops::rotate)) * elements,
       2 * x.bytes() / x.shape(2) + weight.bytes() + cosines.bytes() + sines.bytes()});
  dispatch(
      x.device(), [&] { gpu::norm_together_and_rotate(x, weight, eps, cosines, sines); },
      [&] { cpu::norm_together_and_rotate(x, weight, eps, cosines, sines); });
  record(before);
}

std::vector<ExactSum> group_sums(const Tensor& x, std::int64_t groups, std::int64_t cell) {
  if (x.empty()) return std::vector<ExactSum>(static_cast<std::size_t>(2 * groups));
  expect(x.shape(1) % cell == 0 && x.shape(2) % cell == 0, "{} in cells of {} pixels", x.shape(),
         cell);
  const Operation operation(trace::spans::norm, {norm_flops::group_sums * x.numel(), x.bytes()},
                            operation_kinds::group_sums);
  return dispatch(
      x.device(), [&] { return gpu::group_sums(x, groups, cell); },
      [&] { return cpu::group_sums(x, groups, cell); },
      [&] { return std::vector<ExactSum>(static_cast<std::size_t>(2 * groups)); });
}

void spatial_norm_silu(const Tensor& x, const SpatialNorm& norm, Tensor& out) {
  expect(out.shape() == x.shape(), "norm of {} to {}", x.shape(), out.shape());
  if (x.empty()) return;
  const Operation operation(trace::spans::norm,
                            {(2 * norm_flops::group + norm_flops::silu) * x.numel(),
                             2 * x.bytes() + norm.scale.bytes() + norm.shift.bytes() +
                                 norm.weight.bytes() + norm.bias.bytes()},
                            operation_kinds::group_norm);
  dispatch(
      x.device(), [&] { gpu::spatial_norm_silu(x, norm, out); },
      [&] { cpu::spatial_norm_silu(x, norm, out); });
}

}  // namespace reelmesh::ops

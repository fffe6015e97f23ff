#include "ops/norm_backward.hpp"

#include <algorithm>
#include <cmath>

#include "ops/cuda/backward.hpp"
#include "ops/index_math.hpp"
#include "ops/math.hpp"
#include "ops/onednn.hpp"
#include "ops/operation.hpp"
#include "ops/parallel.hpp"
#include "ops/pointwise_functions.hpp"
#include "ops/row_sums.hpp"
#include "ops/rows.hpp"
#include "tensor/convert.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh::ops {
namespace {

// d: of the norm's result; replaced by that of x, which is replaced by the normalised x.
[[gnu::always_inline]] inline void norm_backward(float* x, float* d, std::int64_t n,
                                                 const float* weight, bool centred, float eps) {
  const auto count = static_cast<float>(n);
  const float mean = centred ? vector_sum(x, n) / count : 0.0F;
  const float rstd = 1.0F / std::sqrt(sum_of_squares(x, n, mean) / count + eps);
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = (x[i] - mean) * rstd;
    d[i] = d[i] * weight[i];
  }
  const float shift = centred ? vector_sum(d, n) / count : 0.0F;
  const float slope = sum_of_products(d, x, n) / count;
  for (std::int64_t i = 0; i < n; ++i) d[i] = ((d[i] - shift) - x[i] * slope) * rstd;
}

// scale: null without modulation. dx += the gradient.
REELMESH_CLONES void layer_norm_backward_row(float* x, float* d, std::int64_t n,
                                             const float* weight, const float* scale, float eps,
                                             float* dx) {
  if (scale != nullptr) {
    for (std::int64_t i = 0; i < n; ++i) d[i] = d[i] * (1.0F + scale[i]);
  }
  norm_backward(x, d, n, weight, true, eps);
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dx[i] + d[i];
}

// c, s: cosines and sines of `angles` channels, or null. d_norm: null, or gets the gradient before
// the rotation.
REELMESH_CLONES void heads_backward(float* x, float* d, std::int64_t heads, std::int64_t n,
                                    const float* weight, bool centred, float eps, const float* c,
                                    const float* s, std::int64_t angles, float* d_norm) {
  for (std::int64_t head = 0; head < heads; ++head) {
    float *x_row = x + head * n, *d_row = d + head * n;
    for (std::int64_t first = 0; c != nullptr && first < n; first += angles) {
      for (std::int64_t i = 0; i < angles; i += 2) {
        rotate_pair_backward(d_row[first + i], d_row[first + i + 1], c + i, s + i);
      }
    }
    if (d_norm != nullptr) std::copy_n(d_row, n, d_norm + head * n);
    norm_backward(x_row, d_row, n, weight, centred, eps);
  }
}

REELMESH_CLONES void multiply_row(float* x, const float* factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * factor[i];
}

REELMESH_CLONES void gelu_row(float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = gelu_tanh(x[i]);
}

REELMESH_CLONES void gelu_backward_row(const float* x, float* d, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) d[i] = d[i] * gelu_tanh_slope(x[i]);
}

REELMESH_CLONES void exact_gelu_backward_row(const float* x, float* d, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) d[i] = GeluGradient{}(x[i], d[i]);
}

float* row_scratch(std::int64_t n) {
  return static_cast<float*>(thread_scratch(4, static_cast<std::size_t>(n) * sizeof(float)));
}

// The row of a table that belongs to a row of x [token, batch, channel].
const float* table_row(const Tensor& table, const FirstTokens& first, std::int64_t batch,
                       std::int64_t row, std::int64_t n) {
  const std::int64_t later = row / batch < first.count ? first.chunks_later * n : 0;
  return table.data<float>() + row % batch % table.shape(0) * table.shape(1) + later;
}

namespace cpu {

void layer_norm_backward(const Tensor& x, const Tensor& weight, float eps,
                         const Modulation& modulation, const Tensor& d, Tensor& dx) {
  const std::int64_t batch = x.shape(1), n = x.shape(2);
  const Tensor w = weight.to(DType::float32);
  const bool modulated = !modulation.table.empty();
  const Tensor table = modulated ? modulation.table.to(DType::float32) : Tensor();
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(x.numel() / n, 32, [&](std::int64_t row) {
      float* values = row_scratch(3 * n);
      convert(x.data<T>() + row * n, values, n);
      convert(d.data<T>() + row * n, values + n, n);
      convert(dx.data<T>() + row * n, values + 2 * n, n);
      const float* scale =
          modulated ? table_row(table, modulation.first, batch, row, n) + modulation.scale * n
                    : nullptr;
      layer_norm_backward_row(values, values + n, n, w.data<float>(), scale, eps, values + 2 * n);
      convert(values + 2 * n, dx.data<T>() + row * n, n);
    });
  });
}

void normalise_and_rotate_backward(const Tensor& x, const HeadNorm& norm, const Tensor& cosines,
                                   const Tensor& sines, std::int64_t unrotated, Tensor& d,
                                   Tensor* d_norm) {
  const std::int64_t batch = x.shape(1), parts = x.shape(2), heads = x.shape(3), n = x.shape(4);
  const std::int64_t angles = cosines.empty() ? n : cosines.shape(1);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(x.shape(0), 4, [&](std::int64_t token) {
      float* values = row_scratch(3 * heads * n);
      float* unrotated_d = d_norm == nullptr ? nullptr : values + 2 * heads * n;
      const bool rotated = !cosines.empty() && token >= unrotated;
      const float* c = rotated ? cosines.data<float>() + (token - unrotated) * angles : nullptr;
      const float* s = rotated ? sines.data<float>() + (token - unrotated) * angles : nullptr;
      for (std::int64_t item = token * batch; item < (token + 1) * batch; ++item) {
        T* d_item = d.data<T>() + item * heads * n;
        convert(x.data<T>() + item * parts * heads * n, values, heads * n);
        convert(d_item, values + heads * n, heads * n);
        heads_backward(values, values + heads * n, heads, n, norm.weight.data<float>(),
                       !norm.bias.empty(), norm.eps, c, s, angles, unrotated_d);
        convert(values + heads * n, d_item, heads * n);
        if (d_norm != nullptr) {
          convert(unrotated_d, d_norm->data<T>() + item * heads * n, heads * n);
        }
      }
    });
  });
}

Tensor gated(const Tensor& d, const Gate& gate) {
  const std::int64_t batch = d.shape(1), n = d.shape(2);
  const Tensor table = gate.table.to(DType::float32);
  Tensor out = Tensor::empty(d.shape(), d.dtype());
  visit_float(d.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(d.numel() / n, 32, [&](std::int64_t row) {
      float* values = row_scratch(n);
      convert(d.data<T>() + row * n, values, n);
      multiply_row(values, table_row(table, gate.first, batch, row, n) + gate.chunk * n, n);
      convert(values, out.data<T>() + row * n, n);
    });
  });
  return out;
}

// Calls f(first element, count) for pieces of a tensor.
template <class F>
void for_each_piece(const Tensor& x, F&& f) {
  constexpr std::int64_t piece = 4096;
  parallel_for((x.numel() + piece - 1) / piece, 4,
               [&](std::int64_t i) { f(i * piece, std::min(piece, x.numel() - i * piece)); });
}

Tensor gelu_tanh(const Tensor& x) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    for_each_piece(x, [&](std::int64_t first, std::int64_t n) {
      float* values = row_scratch(n);
      convert(x.data<T>() + first, values, n);
      gelu_row(values, n);
      convert(values, out.data<T>() + first, n);
    });
  });
  return out;
}

// row: x and d of some elements → their new d
void multiply_by_slope(const Tensor& x, Tensor& d,
                       void (*row)(const float*, float*, std::int64_t)) {
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    for_each_piece(x, [&](std::int64_t first, std::int64_t n) {
      float* values = row_scratch(2 * n);
      convert(x.data<T>() + first, values, n);
      convert(d.data<T>() + first, values + n, n);
      row(values, values + n, n);
      convert(values + n, d.data<T>() + first, n);
    });
  });
}

void gelu_tanh_backward(const Tensor& x, Tensor& d) { multiply_by_slope(x, d, gelu_backward_row); }
void gelu_backward(const Tensor& x, Tensor& d) { multiply_by_slope(x, d, exact_gelu_backward_row); }

}  // namespace cpu

}  // namespace

void layer_norm_backward(const Tensor& x, const Tensor& weight, float eps,
                         const Modulation& modulation, const Tensor& d, Tensor& dx) {
  expect(x.shape().size() == 3 && x.shape() == d.shape() && x.shape() == dx.shape() &&
             x.dtype() == d.dtype() && x.dtype() == dx.dtype(),
         "gradient of a norm of {}: {}, added to {}", x.shape(), d.shape(), dx.shape());
  if (x.empty()) return;
  const Operation operation(trace::spans::norm,
                            {2 * norm_flops::layer * x.numel(), 4 * x.bytes() + weight.bytes()});
  dispatch(
      x.device(), [&] { gpu::layer_norm_backward(x, weight, eps, modulation, d, dx); },
      [&] { cpu::layer_norm_backward(x, weight, eps, modulation, d, dx); });
}

void normalise_and_rotate_backward(const Tensor& x, const HeadNorm& norm, const Tensor& cosines,
                                   const Tensor& sines, std::int64_t unrotated, Tensor& d,
                                   Tensor* d_norm) {
  if (x.empty()) return;
  expect(d.numel() == x.numel() / x.shape(2) && d.dtype() == x.dtype() &&
             (cosines.empty() ||
              (cosines.shape().size() == 2 && cosines.shape(0) == x.shape(0) - unrotated &&
               cosines.shape(1) % 2 == 0 && x.shape(4) % cosines.shape(1) == 0)),
         "gradient {} of a norm of heads {}, rotated by {}", d.shape(), x.shape(), cosines.shape());
  const Operation operation(
      trace::spans::norm,
      {(2 * norm_flops::layer + norm_flops::rotate) * d.numel(), 3 * d.bytes()});
  dispatch(
      x.device(),
      [&] { gpu::normalise_and_rotate_backward(x, norm, cosines, sines, unrotated, d, d_norm); },
      [&] { cpu::normalise_and_rotate_backward(x, norm, cosines, sines, unrotated, d, d_norm); });
}

Tensor gated(const Tensor& d, const Gate& gate) {
  if (d.empty()) return Tensor::empty(d.shape(), d.dtype(), d.device());
  note_moved(2 * d.bytes());
  return dispatch(
      d.device(), [&] { return gpu::gated(d, gate); }, [&] { return cpu::gated(d, gate); },
      [&] { return Tensor::empty(d.shape(), d.dtype(), d.device()); });
}

void record_activation(Tensor& out, const Tensor& x, void (*backward)(const Tensor& x, Tensor& d)) {
  Tape* const tape = Tape::of(x);
  if (tape == nullptr) return;
  tape->record(out, [tape, x, backward](Tensor d) {
    Tape::own(d);
    d = d.reshape(x.shape());
    backward(x, d);
    add_gradient(*tape, x, std::move(d));
  });
}

Tensor gelu_tanh(const Tensor& x) {
  note_moved(2 * x.bytes());
  Tensor out = dispatch(
      x.device(), [&] { return gpu::gelu_tanh(x); }, [&] { return cpu::gelu_tanh(x); },
      [&] { return Tensor::empty(x.shape(), x.dtype(), x.device()); });
  record_activation(out, x, gelu_tanh_backward);
  return out;
}

namespace {

void expect_alike(const Tensor& x, const Tensor& d) {
  expect(x.shape() == d.shape() && x.dtype() == d.dtype(), "gradient {} of an activation of {}",
         d.shape(), x.shape());
}

}  // namespace

void gelu_tanh_backward(const Tensor& x, Tensor& d) {
  expect_alike(x, d);
  if (x.empty()) return;
  note_moved(3 * x.bytes());
  dispatch(
      x.device(), [&] { gpu::gelu_tanh_backward(x, d); }, [&] { cpu::gelu_tanh_backward(x, d); });
}

void gelu_backward(const Tensor& x, Tensor& d) {
  expect_alike(x, d);
  if (x.empty()) return;
  note_moved(3 * x.bytes());
  dispatch(
      x.device(), [&] { gpu::gelu_backward(x, d); }, [&] { cpu::gelu_backward(x, d); });
}

}  // namespace reelmesh::ops

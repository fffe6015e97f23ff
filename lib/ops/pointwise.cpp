#include "ops/pointwise.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/clones.hpp"
#include "ops/cuda/ops.hpp"
#include "ops/index_math.hpp"
#include "ops/math.hpp"
#include "ops/norm_backward.hpp"
#include "ops/parallel.hpp"
#include "ops/pointwise_functions.hpp"
#include "ops/rows.hpp"
#include "tensor/convert.hpp"
#include "tensor/dispatch.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::ops {
namespace {

constexpr std::int64_t piece = 16384;  // elements of one task

// Calls f(first, count) for pieces of [0, n), in parallel.
template <class F>
void in_pieces(std::int64_t n, F&& f) {
  parallel_for((n + piece - 1) / piece, 1,
               [&](std::int64_t i) { f(i * piece, std::min(piece, n - i * piece)); });
}

// Batch items of x [token, channel] or [token, item, channel].
std::int64_t batch_items(const Tensor& x) { return x.shape().size() == 3 ? x.shape(1) : 1; }

Tensor like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); }

Shape joined_shape(std::span<const Tensor> parts) {
  Shape shape = parts.front().shape();
  shape[1] = 0;
  for (const Tensor& part : parts) shape[1] += part.shape(1);
  return shape;
}

namespace cpu {

// Of floats; out may be x.
template <class F>
REELMESH_CLONES void apply(const F& f, const float* x, const float* y, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = f(x[i], y[i]);
}
template <class F>
REELMESH_CLONES void apply(const F& f, float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = f(x[i]);
}

// out = f(x, y) element by element, computed in float32 in parts that stay in the nearest cache.
// out may be x.
template <class T, class F>
void combine(const F& f, const T* x, const T* y, T* out, std::int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    apply(f, x, y, out, n);
    return;
  }
  constexpr std::int64_t part = 1024;
  std::array<float, part> a, b;
  for (std::int64_t first = 0; first < n; first += part) {
    const std::int64_t count = std::min(part, n - first);
    convert(x + first, a.data(), count);
    convert(y + first, b.data(), count);
    apply(f, a.data(), b.data(), a.data(), count);
    convert(a.data(), out + first, count);
  }
}

template <class F>
void combine(const F& f, const Tensor& x, const Tensor& y, Tensor& out) {
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    in_pieces(x.numel(), [&](std::int64_t first, std::int64_t count) {
      combine<T>(f, x.data<T>() + first, y.data<T>() + first, out.data<T>() + first, count);
    });
  });
}

void add(Tensor& x, const Tensor& y) { combine(Sum{}, x, y, x); }

Tensor multiply(const Tensor& x, const Tensor& y) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  combine(Product{}, x, y, out);
  return out;
}

void average(const Tensor& x, const Tensor& y, Tensor& out) { combine(Average{}, x, y, out); }

template <class F>
Tensor mapped(const F& f, const Tensor& x) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    in_pieces(x.numel(), [&](std::int64_t first, std::int64_t count) {
      constexpr std::int64_t part = 1024;
      std::array<float, part> values;
      for (std::int64_t at = first; at < first + count; at += part) {
        const std::int64_t some = std::min(part, first + count - at);
        convert(x.data<T>() + at, values.data(), some);
        apply(f, values.data(), some);
        convert(values.data(), out.data<T>() + at, some);
      }
    });
  });
  return out;
}

Tensor silu(const Tensor& x) { return mapped(Silu{}, x); }
Tensor gelu(const Tensor& x) { return mapped(Gelu{}, x); }
Tensor scaled(const Tensor& x, float factor) { return mapped(Scale{factor}, x); }

// Products of 64 bits have no vector instructions everywhere, so those of floats have a loop of
// their own.
REELMESH_CLONES void drop(Drop f, const std::uint32_t* random, float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = f(x[i], random[i]);
}

Tensor dropped(const Tensor& x, const DropoutMask& mask, const Tensor& rows,
               std::int64_t first_column) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const std::int64_t n = x.shape().back();
  const Drop f(mask.probability);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(n == 0 ? 0 : x.numel() / n, 16, [&](std::int64_t r) {
      const std::int64_t row = rows.empty() ? r : rows.data<std::int32_t>()[r];
      const std::uint64_t key = mask.key_at(row, first_column);
      constexpr std::int64_t part = 1024;
      std::array<float, part> values;
      std::array<std::uint32_t, part> random;
      for (std::int64_t at = 0; at < n; at += part) {
        const std::int64_t some = std::min(part, n - at);
        convert(x.data<T>() + r * n + at, values.data(), some);
        for (std::int64_t i = 0; i < some; ++i) {
          random[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(
              random_bits(key, static_cast<std::uint64_t>(at + i)) >> 32);
        }
        drop(f, random.data(), values.data(), some);
        convert(values.data(), out.data<T>() + r * n + at, some);
      }
    });
  });
  return out;
}

void add_table(Tensor& x, const Tensor& table) {
  const std::int64_t batch = x.shape(1), n = x.shape(2);
  const Tensor same = table.to(x.dtype());
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(x.shape(0) * batch, 16, [&](std::int64_t row) {
      T* into = x.data<T>() + row * n;
      combine<T>(Sum{}, into, same.data<T>() + row / batch * n, into, n);
    });
  });
}

void repeat_for_batch(const Tensor& x, Tensor& out) {
  const std::int64_t copies = out.shape(1) / batch_items(x);
  const auto bytes = static_cast<std::size_t>(out.shape(2) * size_of(out.dtype()));
  for (std::int64_t row = 0; row < out.shape(0) * out.shape(1); ++row) {
    std::memcpy(
        static_cast<std::byte*>(out.raw()) + static_cast<std::size_t>(row) * bytes,
        static_cast<const std::byte*>(x.raw()) + static_cast<std::size_t>(row / copies) * bytes,
        bytes);
  }
}

Tensor join_batches(std::span<const Tensor> parts) {
  const Shape shape = joined_shape(parts);
  Tensor out = Tensor::empty(shape, parts.front().dtype());
  auto* into = static_cast<std::byte*>(out.raw());
  for (std::int64_t token = 0; token < shape[0]; ++token) {
    for (const Tensor& part : parts) {
      const Tensor items = part.rows(token, 1);
      const auto bytes = static_cast<std::size_t>(items.bytes());
      std::memcpy(into, items.raw(), bytes);
      into += bytes;
    }
  }
  return out;
}

// f(token, feature, offset in the latents) for all elements: PatchOrder without its divisions.
template <class F>
void for_each_patch_element(const Shape& latents, const Patch& patch, F&& f) {
  const std::int64_t channels = latents[1], rows = latents[2], columns = latents[3];
  const std::int64_t grid_rows = rows / patch.rows, grid_columns = columns / patch.columns;
  parallel_for(latents[0] / patch.frames * grid_rows, 1, [&](std::int64_t line) {
    const std::int64_t t = line / grid_rows, y = line % grid_rows;
    for (std::int64_t x = 0; x < grid_columns; ++x) {
      std::int64_t feature = 0;
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t pt = 0; pt < patch.frames; ++pt) {
          for (std::int64_t py = 0; py < patch.rows; ++py) {
            for (std::int64_t px = 0; px < patch.columns; ++px) {
              const std::int64_t element =
                  (((t * patch.frames + pt) * channels + c) * rows + y * patch.rows + py) *
                      columns +
                  x * patch.columns + px;
              f(line * grid_columns + x, feature++, element);
            }
          }
        }
      }
    }
  });
}

Tensor patchify(const Tensor& latents, const Patch& patch, DType dtype) {
  const Shape& s = latents.shape();
  const std::int64_t features = s[1] * patch.frames * patch.rows * patch.columns;
  Tensor out = Tensor::empty({latents.numel() / features, features}, dtype);
  visit_float(dtype, [&](auto type) {
    using T = decltype(type);
    for_each_patch_element(
        s, patch, [&](std::int64_t token, std::int64_t feature, std::int64_t element) {
          out.data<T>()[token * features + feature] = T(latents.data<float>()[element]);
        });
  });
  return out;
}

Tensor unpatchify(const Tensor& tokens, std::int64_t batch_item, const Patch& patch,
                  const Shape& extents) {
  const std::int64_t batch = tokens.shape(1), features = tokens.shape(2);
  Tensor out = Tensor::empty(extents, DType::float32);
  visit_float(tokens.dtype(), [&](auto type) {
    using T = decltype(type);
    for_each_patch_element(
        extents, patch, [&](std::int64_t token, std::int64_t feature, std::int64_t element) {
          out.data<float>()[element] = static_cast<float>(
              tokens.data<T>()[(token * batch + batch_item) * features + feature]);
        });
  });
  return out;
}

Tensor channels_to_frames(const Tensor& x) {
  const Shape& s = x.shape();
  Tensor out = Tensor::empty({2 * s[0], s[1], s[2], s[3] / 2}, x.dtype());
  const std::int64_t pixels = s[1] * s[2], channels = s[3] / 2;
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(s[0] * pixels, 256, [&](std::int64_t at) {
      const T* from = x.data<T>() + at * 2 * channels;
      T* into = out.data<T>() + (at / pixels * 2 * pixels + at % pixels) * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        into[c] = from[2 * c];
        into[pixels * channels + c] = from[2 * c + 1];
      }
    });
  });
  return out;
}

Tensor to_pixels(const Tensor& x) {
  Tensor out = Tensor::empty(x.shape(), DType::uint8);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    in_pieces(x.numel(), [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count; ++i) {
        out.data<std::uint8_t>()[i] = to_pixel(static_cast<float>(x.data<T>()[i]));
      }
    });
  });
  return out;
}

void flag_non_finite(const Tensor& x, Tensor& flag) {
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    in_pieces(x.numel(), [&](std::int64_t first, std::int64_t count) {
      const T* values = x.data<T>() + first;
      bool found = false;
      for (std::int64_t i = 0; i < count; ++i) found |= !is_finite(static_cast<float>(values[i]));
      if (found) std::atomic_ref(*flag.data<std::int32_t>()) = 1;
    });
  });
}

}  // namespace cpu
}  // namespace

REELMESH_CLONES void add_elements(float* sums, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sums[i] += x[i];
}

void add(Tensor& x, const Tensor& y) {
  expect(x.shape() == y.shape(), "{} + {}", x.shape(), y.shape());
  note_moved(3 * x.bytes());
  if (Tape::recording() != nullptr) Tape::own(x);
  dispatch(
      x.device(), [&] { gpu::add(x, y); }, [&] { cpu::add(x, y); });
  if (Tape* tape = Tape::of(x, y)) {
    tape->record(x, [tape, x = TapeValue(x), y = TapeValue(y)](const Tensor& d) {
      add_gradient(*tape, y, d);
      add_gradient(*tape, x, d);
    });
  }
}

Tensor multiply(const Tensor& x, const Tensor& y) {
  expect(x.shape() == y.shape(), "{} * {}", x.shape(), y.shape());
  note_moved(3 * x.bytes());
  return dispatch(
      x.device(), [&] { return gpu::multiply(x, y); }, [&] { return cpu::multiply(x, y); },
      [&] { return like(x); });
}

void average(const Tensor& x, const Tensor& y, Tensor& out) {
  expect(x.shape() == y.shape() && x.shape() == out.shape(), "average of {} and {} in {}",
         x.shape(), y.shape(), out.shape());
  note_moved(3 * x.bytes());
  dispatch(
      x.device(), [&] { gpu::average(x, y, out); }, [&] { cpu::average(x, y, out); });
}

Tensor silu(const Tensor& x) {
  note_moved(2 * x.bytes());
  Tensor out = dispatch(
      x.device(), [&] { return gpu::silu(x); }, [&] { return cpu::silu(x); },
      [&] { return like(x); });
  if (Tape* tape = Tape::of(x)) {
    tape->record(out, [tape, x](const Tensor& d) {
      add_gradient(*tape, x, silu_backward(numbers(x), d.reshape(x.shape())));
    });
  }
  return out;
}

Tensor silu_backward(const Tensor& x, const Tensor& d) {
  note_moved(3 * d.bytes());
  Tensor out = Tensor::empty(d.shape(), DType::float32, d.device());
  for (std::int64_t i = 0; i < d.numel() && !d.device().only_shapes; ++i) {
    const double value = x.data<float>()[i], s = 1 / (1 + std::exp(-value));
    out.data<float>()[i] =
        static_cast<float>(double{d.data<float>()[i]} * s * (1 + value * (1 - s)));
  }
  return out;
}

Tensor gelu(const Tensor& x) {
  note_moved(2 * x.bytes());
  Tensor out = dispatch(
      x.device(), [&] { return gpu::gelu(x); }, [&] { return cpu::gelu(x); },
      [&] { return like(x); });
  record_activation(out, x, gelu_backward);
  return out;
}

Tensor scaled(const Tensor& x, float factor) {
  note_moved(2 * x.bytes());
  return dispatch(
      x.device(), [&] { return gpu::scaled(x, factor); }, [&] { return cpu::scaled(x, factor); },
      [&] { return like(x); });
}

Tensor dropped(const Tensor& x, const DropoutMask& mask, const Tensor& rows,
               std::int64_t first_column) {
  const std::int64_t n = x.shape().back();
  expect(mask.probability >= 0 && mask.probability < 1 && first_column + n <= mask.columns &&
             (rows.empty() || rows.numel() * n == x.numel()),
         "dropout of {} from column {} of {} on, {} rows, probability {}", x.shape(), first_column,
         mask.columns, rows.numel(), mask.probability);
  note_moved(2 * x.bytes());
  return dispatch(
      x.device(), [&] { return gpu::dropped(x, mask, rows, first_column); },
      [&] { return cpu::dropped(x, mask, rows, first_column); }, [&] { return like(x); });
}

void add_table(Tensor& x, const Tensor& table) {
  expect(table.shape() == Shape{x.shape(0), x.shape(2)}, "table {} for {}", table.shape(),
         x.shape());
  note_moved(2 * x.bytes());
  if (Tape::recording() != nullptr) Tape::own(x);
  dispatch(
      x.device(), [&] { gpu::add_table(x, table); }, [&] { cpu::add_table(x, table); },
      [&] { table.to(x.dtype()); });
}

void repeat_for_batch(const Tensor& x, Tensor& out) {
  expect(x.numel() * (out.shape(1) / batch_items(x)) == out.numel(), "{} repeated as {}", x.shape(),
         out.shape());
  note_moved(2 * out.bytes());
  dispatch(
      out.device(), [&] { gpu::repeat_for_batch(x, out); }, [&] { cpu::repeat_for_batch(x, out); });
  if (Tape* tape = Tape::of(x)) {
    expect(x.numel() == out.numel(), "the gradient of items that are repeated");
    tape->record(out, [tape, x = TapeValue(x)](const Tensor& d) {
      add_gradient(*tape, x, d.reshape(x.shape));
    });
  }
}

Tensor join_batches(std::span<const Tensor> parts) {
  if (parts.size() == 1) return parts.front();
  note_moved(2 * numel(joined_shape(parts)) * size_of(parts.front().dtype()));
  return dispatch(
      parts.front().device(), [&] { return gpu::join_batches(parts); },
      [&] { return cpu::join_batches(parts); },
      [&] {
        return Tensor::empty(joined_shape(parts), parts.front().dtype(), parts.front().device());
      });
}

Tensor patchify(const Tensor& latents, const Patch& patch, DType dtype) {
  const Shape& s = latents.shape();
  expect(s.size() == 4 && s[0] % patch.frames == 0 && s[2] % patch.rows == 0 &&
             s[3] % patch.columns == 0,
         "latents {} do not divide into patches", to_string(s));
  note_moved(latents.bytes() + latents.numel() * size_of(dtype));
  return dispatch(
      latents.device(), [&] { return gpu::patchify(latents, patch, dtype); },
      [&] { return cpu::patchify(latents, patch, dtype); },
      [&] {
        const std::int64_t features = s[1] * patch.frames * patch.rows * patch.columns;
        return Tensor::empty({latents.numel() / features, features}, dtype, latents.device());
      });
}

Tensor unpatchify(const Tensor& tokens, std::int64_t batch_item, const Patch& patch,
                  const Shape& extents) {
  expect(reelmesh::numel(extents) == tokens.shape(0) * tokens.shape(2),
         "tokens {} do not match latents {}", tokens.shape(), extents);
  note_moved(tokens.bytes() / tokens.shape(1) + reelmesh::numel(extents) * size_of(DType::float32));
  Tensor out = dispatch(
      tokens.device(), [&] { return gpu::unpatchify(tokens, batch_item, patch, extents); },
      [&] { return cpu::unpatchify(tokens, batch_item, patch, extents); },
      [&] { return Tensor::empty(extents, DType::float32, tokens.device()); });
  if (Tape* tape = Tape::of(tokens)) {
    expect(tokens.shape(1) == 1, "the gradient of one of {} batch items", tokens.shape(1));
    tape->record(out, [tape, tokens = TapeValue(tokens), patch, extents](const Tensor& d) {
      add_gradient(*tape, tokens,
                   patchify(d.reshape(extents), patch, tokens.dtype).reshape(tokens.shape));
    });
  }
  return out;
}

Tensor channels_to_frames(const Tensor& x) {
  const Shape& s = x.shape();
  expect(s.size() == 4 && s[3] % 2 == 0, "{} has an odd number of channels", to_string(s));
  note_moved(2 * x.bytes());
  return dispatch(
      x.device(), [&] { return gpu::channels_to_frames(x); },
      [&] { return cpu::channels_to_frames(x); },
      [&] {
        return Tensor::empty({2 * s[0], s[1], s[2], s[3] / 2}, x.dtype(), x.device());
      });
}

Tensor to_pixels(const Tensor& x) {
  note_moved(x.bytes() + x.numel());
  return dispatch(
      x.device(), [&] { return gpu::to_pixels(x); }, [&] { return cpu::to_pixels(x); },
      [&] { return Tensor::empty(x.shape(), DType::uint8, x.device()); });
}

void flag_non_finite(const Tensor& x, Tensor& flag) {
  if (x.empty()) return;
  note_moved(x.bytes());
  dispatch(
      x.device(), [&] { gpu::flag_non_finite(x, flag); }, [&] { cpu::flag_non_finite(x, flag); });
}

}  // namespace reelmesh::ops

#include "ops/cuda/ops.hpp"
#include "ops/index_math.hpp"
#include "ops/math.hpp"
#include "ops/pointwise_functions.hpp"
#include "tensor/cuda/packs.cuh"
#include "tensor/cuda/strided_copy.hpp"

namespace reelmesh::gpu {
namespace {

// x[row] += table[row / batch]; rows of n elements.
template <class T>
struct AddTable {
  T* x;
  Numbers<T> table;
  std::uint32_t n, batch;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, n);
    float v[W], t[W];
    load<W>(x + at, v);
    table.template load<W>(element.row / batch * std::int64_t{n} + element.column, t);
    // The table is rounded to x's type first, as on the CPU.
    for (int i = 0; i < W; ++i) v[i] += widen(narrow<T>(t[i]));
    store<W>(v, x + at);
  }
};

// rows: or null.
template <class T>
struct Dropped {
  ops::Drop f;
  const T* x;
  T* out;
  const std::int32_t* rows;
  std::uint32_t n;
  std::uint64_t key;  // of the first column
  std::uint64_t columns;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, n);
    const std::uint64_t row = rows == nullptr ? element.row : rows[element.row];
    const std::uint64_t first = row * columns + element.column;
    float v[W];
    load<W>(x + at, v);
    for (int i = 0; i < W; ++i) v[i] = f(v[i], ops::random_bits(key, first + i) >> 32);
    store<W>(v, out + at);
  }
};

// out[row] = x[row / times], rows of n elements. T: an integer of the element's size.
template <class T>
struct Repeat {
  const T* x;
  T* out;
  std::uint32_t n, times;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, n);
    copy<W>(x + element.row / times * std::int64_t{n} + element.column, out + at);
  }
};

template <class T>
struct Patchify {
  ops::PatchOrder order;
  const float* latents;
  T* out;
  std::uint32_t features;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, features);
    float v[W];
    for (int i = 0; i < W; ++i) v[i] = latents[order.element(element.row, element.column + i)];
    store<W>(v, out + at);
  }
};

template <class T>
struct Unpatchify {
  ops::PatchOrder order;
  const T* tokens;
  float* out;
  std::uint32_t features, batch, item;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, features);
    float v[W];
    load<W>(tokens + (element.row * std::int64_t{batch} + item) * features + element.column, v);
    for (int i = 0; i < W; ++i) out[order.element(element.row, element.column + i)] = v[i];
  }
};

template <class T>
struct ToPixels {
  const T* x;
  std::uint8_t* out;
  template <int W>
  __device__ void run(std::int64_t at) const {
    float v[W];
    load<W>(x + at, v);
    for (int i = 0; i < W; ++i) out[at + i] = ops::to_pixel(v[i]);
  }
};

// Threads that find a value store the same number, in any order.
template <class T>
struct FlagNonFinite {
  const T* x;
  std::int32_t* flag;
  template <int W>
  __device__ void run(std::int64_t at) const {
    float v[W];
    load<W>(x + at, v);
    for (int i = 0; i < W; ++i) {
      if (!ops::is_finite(v[i])) *flag = 1;
    }
  }
};

template <class F, class... In>
Tensor mapped(const char* name, const F& f, const Tensor& x, const In&... more) {
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  visit_float(x.dtype(), [&](auto type) { map<decltype(type)>(name, out, f, x, more...); });
  return out;
}

ops::PatchOrder patch_order(const Shape& latents, const Patch& patch) {
  return {latents[1], latents[2], latents[3], patch.frames, patch.rows, patch.columns};
}

// Calls f with an integer of the element's size, 16 or 32 bits, to copy rows of any type.
template <class F>
void visit_size(DType dtype, F&& f) {
  if (size_of(dtype) == 4) return f(std::uint32_t{});
  expect(size_of(dtype) == 2, "rows of {} copied", name_of(dtype));
  f(std::uint16_t{});
}

}  // namespace

void add(Tensor& x, const Tensor& y) {
  visit_float(x.dtype(), [&](auto type) { map<decltype(type)>("add", x, ops::Sum{}, x, y); });
}

Tensor multiply(const Tensor& x, const Tensor& y) {
  return mapped("multiply", ops::Product{}, x, y);
}
void average(const Tensor& x, const Tensor& y, Tensor& out) {
  visit_float(x.dtype(),
              [&](auto type) { map<decltype(type)>("average", out, ops::Average{}, x, y); });
}

Tensor silu(const Tensor& x) { return mapped("silu", ops::Silu{}, x); }
Tensor gelu(const Tensor& x) { return mapped("gelu", ops::Gelu{}, x); }
Tensor scaled(const Tensor& x, float factor) { return mapped("scaled", ops::Scale{factor}, x); }

Tensor dropped(const Tensor& x, const DropoutMask& mask, const Tensor& rows,
               std::int64_t first_column) {
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Device device = x.device();
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = address<T>(x, device);
    T* into = address<T>(out, device);
    for_packs<T>("dropped", device, x.numel(), x.shape().back(), {from, into},
                 Dropped<T>{ops::Drop(mask.probability), from, into,
                            rows.empty() ? nullptr : address<std::int32_t>(rows, device),
                            narrow_index(x.shape().back()), mask.key_at(0, first_column),
                            static_cast<std::uint64_t>(mask.columns)});
  });
  return out;
}

void add_table(Tensor& x, const Tensor& table) {
  const std::int64_t batch = x.shape(1), n = x.shape(2);
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* into = address<T>(x, x.device());
    const Numbers<T> numbers(table, x.device());
    for_packs<T>("add_table", x.device(), x.numel(), n, {into, numbers.any()},
                 AddTable<T>{into, numbers, narrow_index(n), narrow_index(batch)});
  });
}

void repeat_for_batch(const Tensor& x, Tensor& out) {
  const std::int64_t items = x.shape().size() == 3 ? x.shape(1) : 1;
  const std::int64_t copies = out.shape(1) / items, n = out.shape(2);
  const Device device = out.device();
  visit_size(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto* from = static_cast<const T*>(x.address_on(device));
    auto* into = static_cast<T*>(out.address_on(device));
    for_packs<T>("repeat_for_batch", device, out.numel(), n, {from, into},
                 Repeat<T>{from, into, narrow_index(n), narrow_index(copies)});
  });
}

Tensor join_batches(std::span<const Tensor> parts) {
  const Tensor& first = parts.front();
  Shape shape = first.shape();
  shape[1] = 0;
  for (const Tensor& part : parts) shape[1] += part.shape(1);
  Tensor out = Tensor::empty(shape, first.dtype(), first.device());
  if (out.empty()) return out;
  std::int64_t before = 0;  // elements of a token
  for (const Tensor& part : parts) {
    const std::int64_t width = part.shape(1) * shape[2];
    if (width == 0) continue;
    copy_strided({2, {shape[0], width}, {width, 1}, {shape[1] * shape[2], 1}, 0, before}, part,
                 out);
    before += width;
  }
  return out;
}

Tensor patchify(const Tensor& latents, const Patch& patch, DType dtype) {
  const ops::PatchOrder order = patch_order(latents.shape(), patch);
  const std::int64_t features = order.features();
  const Device device = latents.device();
  Tensor out = Tensor::empty({latents.numel() / features, features}, dtype, device);
  visit_float(dtype, [&](auto type) {
    using T = decltype(type);
    T* into = address<T>(out, device);
    for_packs<T>("patchify", device, out.numel(), features, {into},
                 Patchify<T>{order, address<float>(latents, device), into, narrow_index(features)});
  });
  return out;
}

Tensor unpatchify(const Tensor& tokens, std::int64_t batch_item, const Patch& patch,
                  const Shape& extents) {
  const Device device = tokens.device();
  Tensor out = Tensor::empty(extents, DType::float32, device);
  const std::int64_t batch = tokens.shape(1), features = tokens.shape(2);
  visit_float(tokens.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = address<T>(tokens, device);
    for_packs<T>(
        "unpatchify", device, out.numel(), features, {from},
        Unpatchify<T>{patch_order(extents, patch), from, address<float>(out, device),
                      narrow_index(features), narrow_index(batch), narrow_index(batch_item)});
  });
  return out;
}

Tensor channels_to_frames(const Tensor& x) {
  const Shape& s = x.shape();
  Tensor out = Tensor::empty({2 * s[0], s[1], s[2], s[3] / 2}, x.dtype(), x.device());
  const std::int64_t frame = out.numel() / std::max<std::int64_t>(1, out.shape(0));
  if (out.empty()) return out;
  // [frame, element, 2] → [frame, 2, element]; element: (row, column, channel)
  copy_strided({3, {s[0], 2, frame}, {2 * frame, 1, 2}, {2 * frame, frame, 1}, 0, 0}, x, out);
  return out;
}

Tensor to_pixels(const Tensor& x) {
  Tensor out = Tensor::empty(x.shape(), DType::uint8, x.device());
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = address<T>(x, x.device());
    for_packs<T>("to_pixels", x.device(), x.numel(), x.numel(), {from},
                 ToPixels<T>{from, address<std::uint8_t>(out, x.device())});
  });
  return out;
}

void flag_non_finite(const Tensor& x, Tensor& flag) {
  visit_float(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = address<T>(x, x.device());
    for_packs<T>("flag_non_finite", x.device(), x.numel(), x.numel(), {from},
                 FlagNonFinite<T>{from, address<std::int32_t>(flag, x.device())});
  });
}

}  // namespace reelmesh::gpu

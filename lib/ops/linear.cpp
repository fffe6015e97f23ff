#include "ops/linear.hpp"

#include <algorithm>
#include <cstring>

#include "base/trace.hpp"
#include "ops/cuda/linear.hpp"
#include "ops/math.hpp"
#include "ops/parallel.hpp"
#include "tensor/convert.hpp"

namespace reelmesh::ops {
namespace {

// The weights of a tile lie in a core's second cache (1920 inputs) while the rows pass by.
constexpr std::int64_t tile_rows = 64;
constexpr std::int64_t tile_columns = 192;

REELMESH_CLONES void add_bias_and_activate(float* tile, std::int64_t rows, std::int64_t columns,
                                           const float* bias, Activation activation) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* y = tile + r * columns;
    if (bias != nullptr) {
      for (std::int64_t c = 0; c < columns; ++c) y[c] += bias[c];
    }
    if (activation == Activation::silu) {
      for (std::int64_t c = 0; c < columns; ++c) y[c] = silu(y[c]);
    } else if (activation == Activation::gelu_tanh) {
      for (std::int64_t c = 0; c < columns; ++c) y[c] = gelu_tanh(y[c]);
    }
  }
}

}  // namespace

namespace {

WeightRows rows_of(const Tensor& weight) {
  expect(weight.shape().size() == 2, "linear: weight {}", to_string(weight.shape()));
  const std::int64_t in = weight.shape(1);
  return {in, weight.shape(0), weight.dtype(),
          [weight, in](std::int64_t first, std::int64_t count, void* into, std::int64_t stride) {
            const auto size = static_cast<std::size_t>(size_of(weight.dtype()));
            for (std::int64_t r = 0; r < count; ++r) {
              std::memcpy(
                  static_cast<std::byte*>(into) + static_cast<std::size_t>(r * stride) * size,
                  weight.rows(first + r, 1).raw(), static_cast<std::size_t>(in) * size);
            }
          }};
}

// At least `in` elements, and an odd number of cache lines: rows at powers of two would meet in few
// sets of the cache while they are packed, and take several times as long.
std::int64_t packing_stride(std::int64_t in, DType dtype) {
  constexpr std::int64_t line = 64;
  return ((in * size_of(dtype) + line - 1) / line | 1) * line / size_of(dtype);
}

}  // namespace

namespace {

// The rows as one tensor on their device, read and sent in pieces.
Tensor on_device(const WeightRows& weight) {
  constexpr std::int64_t piece_bytes = 32 << 20;
  const std::int64_t row_bytes = weight.in * size_of(weight.dtype);
  const std::int64_t piece =
      std::max<std::int64_t>(1, piece_bytes / std::max<std::int64_t>(1, row_bytes));
  const Tensor all = Tensor::empty({weight.out, weight.in}, weight.dtype, weight.device);
  const Tensor host = Tensor::empty({std::min(piece, weight.out), weight.in}, weight.dtype);
  for (std::int64_t first = 0; first < weight.out; first += piece) {
    const std::int64_t count = std::min(piece, weight.out - first);
    weight.read(first, count, host.raw(), weight.in);
    all.rows(first, count).copy_from(host.rows(0, count));
  }
  return all;
}

}  // namespace

Linear::Linear(const Tensor& weight, const Tensor& bias) {
  if (!weight.device().is_cuda()) {
    *this = Linear(rows_of(weight), bias);
    return;
  }
  expect(weight.shape().size() == 2 && (bias.empty() || bias.shape() == Shape{weight.shape(0)}),
         "linear: weight {} and bias {}", to_string(weight.shape()), to_string(bias.shape()));
  in_ = weight.shape(1);
  out_ = weight.shape(0);
  dtype_ = weight.dtype();
  packed_ = weight;
  bias_ = bias.on(weight.device()).to(dtype_);
}

Linear::Linear(const WeightRows& weight, const Tensor& bias)
    : in_(weight.in), out_(weight.out), dtype_(weight.dtype) {
  expect(bias.empty() || bias.shape() == Shape{out_}, "linear: {} outputs and bias {}", out_,
         to_string(bias.shape()));
  if (weight.device.is_cuda()) {
    *this = Linear(on_device(weight), bias);
    return;
  }
  const DType compute = compute_dtype(dtype_);
  if (!bias.empty()) bias_ = bias.to(DType::float32);

  // Equal tiles as far as multiples of 16 columns allow, and one smaller last tile.
  const std::int64_t count = (out_ + tile_columns - 1) / tile_columns;
  const std::int64_t width = ((out_ + count - 1) / count + 15) / 16 * 16;
  std::int64_t bytes = 0;
  for (std::int64_t column = 0; column < out_; column += width) {
    const std::int64_t columns = std::min(width, out_ - column);
    if (products_.empty() || columns != width) {
      products_.emplace_back(tile_rows, columns, in_, compute);
    }
    tiles_.push_back({column, columns, products_.size() - 1, bytes});
    bytes += static_cast<std::int64_t>(products_.back().packed_bytes());
  }
  packed_ = Tensor::empty({bytes}, DType::uint8);
  const std::int64_t stride = packing_stride(in_, compute);
  parallel_for(static_cast<std::int64_t>(tiles_.size()), 1, [&](std::int64_t i) {
    const Tile& tile = tiles_[static_cast<std::size_t>(i)];
    const auto elements = static_cast<std::size_t>(tile.columns * stride);
    void* rows = thread_scratch(0, elements * static_cast<std::size_t>(size_of(dtype_)));
    weight.read(tile.column, tile.columns, rows, stride);
    if (compute != dtype_) {
      void* wide = thread_scratch(1, elements * static_cast<std::size_t>(size_of(compute)));
      convert(rows, dtype_, wide, compute, static_cast<std::int64_t>(elements));
      rows = wide;
    }
    products_[tile.product].pack(rows, true, stride, packed_.data<std::uint8_t>() + tile.offset);
  });
}

Tensor Linear::operator()(const Tensor& x, Activation activation) const {
  expect(x.dtype() == dtype_ && !x.shape().empty() && x.shape().back() == in_,
         "linear of {} inputs in {} given {} in {}", in_, name_of(dtype_), to_string(x.shape()),
         name_of(x.dtype()));
  if constexpr (cuda_built) {
    if (x.device().is_cuda()) return gpu::linear(x, packed_, bias_, activation);
  }
  Shape shape = x.shape();
  shape.back() = out_;
  Tensor out = Tensor::empty(std::move(shape), dtype_);
  const std::int64_t rows = x.numel() / in_;
  if (rows == 0) return out;
  trace::recorder().flops += 2 * rows * in_ * out_;
  const DType compute = compute_dtype(dtype_);
  const Tensor input = x.to(compute);

  const auto row_tiles = (rows + tile_rows - 1) / tile_rows;
  const auto column_tiles = static_cast<std::int64_t>(tiles_.size());
  parallel_for(row_tiles * column_tiles, 1, [&](std::int64_t task) {
    const Tile& tile = tiles_[static_cast<std::size_t>(task / row_tiles)];
    const std::int64_t row = task % row_tiles * tile_rows;
    const std::int64_t count = std::min(tile_rows, rows - row);
    const auto row_bytes = static_cast<std::size_t>(in_ * size_of(compute));
    const std::byte* source =
        static_cast<const std::byte*>(input.raw()) + static_cast<std::size_t>(row) * row_bytes;
    if (count < tile_rows) {  // pad the last tile, so that every row meets the same kernel
      void* padded = thread_scratch(0, tile_rows * row_bytes);
      std::memcpy(padded, source, static_cast<std::size_t>(count) * row_bytes);
      std::memset(static_cast<std::byte*>(padded) + static_cast<std::size_t>(count) * row_bytes, 0,
                  static_cast<std::size_t>(tile_rows - count) * row_bytes);
      source = static_cast<const std::byte*>(padded);
    }
    auto* result = static_cast<float*>(
        thread_scratch(1, static_cast<std::size_t>(tile_rows * tile.columns) * sizeof(float)));
    products_[tile.product].run(source, packed_.data<std::uint8_t>() + tile.offset, result);
    add_bias_and_activate(result, count, tile.columns,
                          bias_.empty() ? nullptr : bias_.data<float>() + tile.column, activation);
    visit_float(dtype_, [&](auto type) {
      using T = decltype(type);
      for (std::int64_t r = 0; r < count; ++r) {
        T* y = out.data<T>() + (row + r) * out_ + tile.column;
        const float* from = result + r * tile.columns;
        for (std::int64_t c = 0; c < tile.columns; ++c) y[c] = T(from[c]);
      }
    });
  });
  return out;
}

}  // namespace reelmesh::ops

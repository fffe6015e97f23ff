#include "ops/linear.hpp"

#include <algorithm>
#include <cstring>

#include "base/trace.hpp"
#include "ops/cuda/linear.hpp"
#include "ops/math.hpp"
#include "ops/packing.hpp"
#include "ops/parallel.hpp"
#include "tensor/convert.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::ops {
namespace {

// With 1920 inputs, the weights of a tile fit in a core's L2 cache while all rows are processed.
constexpr std::int64_t tile_rows = TileProduct::tile_rows;
constexpr std::int64_t tile_columns = 192;

// Columns of a tile: a multiple of 16, as equal as possible; the last tile may be smaller.
std::int64_t tile_width(std::int64_t out) {
  const std::int64_t count = std::max<std::int64_t>(1, (out + tile_columns - 1) / tile_columns);
  return ((out + count - 1) / count + 15) / 16 * 16;
}

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

WeightRows rows_of(const Tensor& weight, const Numerics& numerics) {
  expect(weight.shape().size() == 2, "linear: weight {}", to_string(weight.shape()));
  const std::int64_t in = weight.shape(1);
  return {in,
          weight.shape(0),
          weight.dtype(),
          [weight, in](std::int64_t first, std::int64_t count, void* into, std::int64_t stride) {
            const auto size = static_cast<std::size_t>(size_of(weight.dtype()));
            for (std::int64_t r = 0; r < count; ++r) {
              std::memcpy(
                  static_cast<std::byte*>(into) + static_cast<std::size_t>(r * stride) * size,
                  weight.rows(first + r, 1).raw(), static_cast<std::size_t>(in) * size);
            }
          },
          {},
          numerics};
}

// Elements from row to row of unpacked weights: at least `in`, and an odd number of cache lines.
// With a power of two the rows would share few cache sets, and packing took several times as long.
std::int64_t packing_stride(std::int64_t in, DType dtype) {
  constexpr std::int64_t line = 64;
  return ((in * size_of(dtype) + line - 1) / line | 1) * line / size_of(dtype);
}

// A buffer of the calling thread for this number of elements.
void* scratch(std::size_t slot, std::int64_t elements, DType dtype) {
  return thread_scratch(slot, static_cast<std::size_t>(elements * size_of(dtype)));
}

std::byte* at(Tensor& x, std::int64_t element) {
  return static_cast<std::byte*>(x.raw()) + element * size_of(x.dtype());
}
const std::byte* at(const Tensor& x, std::int64_t element) {
  return static_cast<const std::byte*>(x.raw()) + element * size_of(x.dtype());
}

// The same values in another type, converted by all threads.
Tensor as(DType dtype, const Tensor& x) {
  if (x.dtype() == dtype) return x;
  constexpr std::int64_t piece = 1 << 16;
  Tensor out = Tensor::empty(x.shape(), dtype);
  parallel_for((x.numel() + piece - 1) / piece, 1, [&](std::int64_t i) {
    const std::int64_t first = i * piece;
    convert(at(x, first), x.dtype(), at(out, first), dtype, std::min(piece, x.numel() - first));
  });
  return out;
}

// Uploads the weight to its device; all threads read rows while earlier rows are in transfer.
Tensor on_device(const WeightRows& weight) {
  Tensor all = Tensor::empty({weight.out, weight.in}, weight.dtype, weight.device);
  if constexpr (cuda_built) {
    if (all.empty()) return all;
    const std::int64_t row_bytes = weight.in * size_of(weight.dtype);
    const std::int64_t some = std::max<std::int64_t>(1, (256 << 10) / row_bytes);
    cuda::upload(weight.device, all.address_on(weight.device), all.bytes(), row_bytes,
                 [&](void* host, std::int64_t offset, std::int64_t count) {
                   const std::int64_t begin = offset / row_bytes, rows = count / row_bytes;
                   parallel_for((rows + some - 1) / some, 1, [&](std::int64_t i) {
                     const std::int64_t first = i * some;
                     weight.read(begin + first, std::min(some, rows - first),
                                 static_cast<std::byte*>(host) + first * row_bytes, weight.in);
                   });
                 });
  }
  return all;
}

}  // namespace

std::int64_t packed_linear_bytes(std::int64_t in, std::int64_t out, DType tensors, DType products,
                                 PackedFor target) {
  if (out == 0) return 0;
  const std::int64_t width = tile_width(out);
  const auto tile = [&](std::int64_t columns) {
    return packed_matrix_bytes(in, columns, products, target);
  };
  const std::int64_t bytes = out / width * tile(width) + (out % width > 0 ? tile(out % width) : 0);
  return bytes / size_of(products) * size_of(tensors);
}

Linear::Linear(const Tensor& weight, const Tensor& bias, const Numerics& numerics) {
  if (!weight.device().is_cuda()) {
    *this = Linear(rows_of(weight, numerics), bias);
    return;
  }
  expect(weight.shape().size() == 2 && (bias.empty() || bias.shape() == Shape{weight.shape(0)}),
         "linear: weight {} and bias {}", to_string(weight.shape()), to_string(bias.shape()));
  in_ = weight.shape(1);
  out_ = weight.shape(0);
  dtype_ = weight.dtype();
  numerics_ = numerics;
  packed_ = weight;
  bias_ = bias.on(weight.device()).to(dtype_);
}

Linear::Linear(const WeightRows& weight, const Tensor& bias)
    : in_(weight.in),
      out_(weight.out),
      dtype_(weight.dtype),
      compute_(compute_dtype(weight.dtype)),
      numerics_(weight.numerics) {
  expect(bias.empty() || bias.shape() == Shape{out_}, "linear: {} outputs and bias {}", out_,
         to_string(bias.shape()));
  if (weight.device.is_cuda()) {
    *this = Linear(on_device(weight), bias, weight.numerics);
    return;
  }
  if (!bias.empty()) bias_ = bias.to(DType::float32);

  const std::int64_t width = tile_width(out_);
  std::int64_t total = 0;
  for (std::int64_t column = 0; column < out_; column += width) {
    const std::int64_t columns = std::min(width, out_ - column);
    if (products_.empty() || columns != width) {
      products_.emplace_back(tile_rows, columns, in_, compute_);
    }
    tiles_.push_back({column, columns, products_.size() - 1, total});
    total += products_.back().packed_elements();
  }
  packed_ = Tensor::empty({total}, dtype_);
  const std::int64_t stride = packing_stride(in_, compute_);
  std::vector<Primitive> packings;
  for (const TileProduct& product : products_) packings.push_back(product.packing(true, stride));
  parallel_for(static_cast<std::int64_t>(tiles_.size()), 1, [&](std::int64_t i) {
    const Tile& tile = tiles_[static_cast<std::size_t>(i)];
    const Primitive& packing = packings[tile.product];
    const std::int64_t plain = tile.columns * stride;
    void* rows = scratch(0, plain, dtype_);
    weight.read(tile.column, tile.columns, rows, stride);
    void* packed = at(packed_, tile.offset);
    if (compute_ == dtype_) {
      packing.run({rows, packed});
      return;
    }
    void* wide = scratch(1, plain, compute_);
    convert(rows, dtype_, wide, compute_, plain);
    const std::int64_t elements = products_[tile.product].packed_elements();
    void* wide_packed = scratch(2, elements, compute_);
    packing.run({wide, wide_packed});
    convert(wide_packed, compute_, packed, dtype_, elements);
  });
}

Tensor Linear::operator()(const Tensor& x, Activation activation) const {
  expect(x.dtype() == dtype_ && !x.shape().empty() && x.shape().back() == in_,
         "linear of {} inputs in {} given {} in {}", in_, name_of(dtype_), to_string(x.shape()),
         name_of(x.dtype()));
  if constexpr (cuda_built) {
    if (x.device().is_cuda()) return gpu::linear(x, packed_, bias_, activation, numerics_);
  }
  Shape shape = x.shape();
  shape.back() = out_;
  Tensor out = Tensor::empty(std::move(shape), dtype_);
  const std::int64_t rows = x.numel() / in_;
  if (rows == 0) return out;
  trace::recorder().flops += 2 * rows * in_ * out_;

  // A task is one tile of weights with several tiles of rows: all rows if there are enough tasks.
  const auto column_tiles = static_cast<std::int64_t>(tiles_.size());
  const std::int64_t row_tiles = (rows + tile_rows - 1) / tile_rows;
  const std::int64_t wanted = (8 * omp_get_max_threads() + column_tiles - 1) / column_tiles;
  const std::int64_t share = (row_tiles + wanted - 1) / wanted;
  const std::int64_t shares = (row_tiles + share - 1) / share;
  const Tensor input = as(compute_, x);
  // Rows of the last tile, and GEMMs of that height.
  const std::int64_t rest = rows % tile_rows;
  const std::int64_t last_rows = rows_of_last_tile(tile_rows, rest, compute_);
  std::vector<TileProduct> last_products;
  for (std::size_t i = 0; rest > 0 && i < products_.size(); ++i) {
    last_products.emplace_back(last_rows, products_[i].columns(), in_, compute_);
  }
  parallel_for(column_tiles * shares, 1, [&](std::int64_t task) {
    const Tile& tile = tiles_[static_cast<std::size_t>(task / shares)];
    const TileProduct& product = products_[tile.product];
    const void* weights = at(packed_, tile.offset);
    if (compute_ != dtype_) {
      void* wide = scratch(2, product.packed_elements(), compute_);
      convert(weights, dtype_, wide, compute_, product.packed_elements());
      weights = wide;
    }
    auto* result = static_cast<float*>(scratch(1, tile_rows * tile.columns, DType::float32));
    const std::int64_t first = task % shares * share;
    for (std::int64_t t = first; t < std::min(first + share, row_tiles); ++t) {
      const std::int64_t row = t * tile_rows, count = std::min(tile_rows, rows - row);
      const auto bytes = static_cast<std::size_t>(count * in_ * size_of(compute_));
      const void* source = at(input, row * in_);
      if (count == tile_rows) {
        product.run(source, weights, result);
      } else {
        auto* padded = static_cast<std::byte*>(scratch(0, last_rows * in_, compute_));
        std::memcpy(padded, source, bytes);
        std::memset(padded + bytes, 0,
                    static_cast<std::size_t>((last_rows - count) * in_ * size_of(compute_)));
        last_products[tile.product].run(padded, weights, result);
      }
      add_bias_and_activate(result, count, tile.columns,
                            bias_.empty() ? nullptr : bias_.data<float>() + tile.column,
                            activation);
      for (std::int64_t r = 0; r < count; ++r) {
        convert(result + r * tile.columns, DType::float32, at(out, (row + r) * out_ + tile.column),
                dtype_, tile.columns);
      }
    }
  });
  return out;
}

}  // namespace reelmesh::ops

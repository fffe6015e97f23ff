#include "ops/token_products.hpp"

#include <algorithm>

#include "ops/cuda/backward.hpp"
#include "ops/onednn.hpp"
#include "ops/operation.hpp"
#include "ops/parallel.hpp"
#include "tensor/convert.hpp"
#include "tensor/dispatch.hpp"

namespace reelmesh::ops {
namespace {

constexpr std::int64_t block_tokens = 512, tile = 64;

std::int64_t count_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// All products are of tiles of one shape, padded with zeros, so that the bits of an element depend
// neither on the number of rows and columns nor on its place among them.
template <class T, class C>
Tensor products(const Tensor& a, const Tensor& b) {
  const std::int64_t tokens = a.shape(0), m = a.shape(1), n = b.shape(1);
  const std::int64_t blocks = count_of(tokens, block_tokens), row_tiles = count_of(m, tile);
  const TileProduct product(tile, tile, block_tokens, dtype_of<C>());
  const Primitive packing = product.packing(false, tile);
  // aᵀ in tiles [block][row tile][row][token].
  Tensor left = Tensor::zeros({blocks * row_tiles * tile * block_tokens}, dtype_of<C>());
  parallel_for(blocks, 1, [&](std::int64_t block) {
    const std::int64_t first = block * block_tokens;
    const std::int64_t count = std::min(block_tokens, tokens - first);
    auto* row = static_cast<C*>(thread_scratch(0, static_cast<std::size_t>(m) * sizeof(C)));
    C* into = left.data<C>() + block * row_tiles * tile * block_tokens;
    for (std::int64_t t = 0; t < count; ++t) {
      convert(a.data<T>() + (first + t) * m, row, m);
      for (std::int64_t i = 0; i < m; ++i) into[i * block_tokens + t] = row[i];
    }
  });
  Tensor out = Tensor::zeros({m, n}, DType::float32);
  parallel_for(count_of(n, tile), 1, [&](std::int64_t column_tile) {
    const std::int64_t column = column_tile * tile, columns = std::min(tile, n - column);
    constexpr std::size_t elements = static_cast<std::size_t>(block_tokens * tile);
    auto* dense = static_cast<C*>(thread_scratch(0, elements * sizeof(C)));
    auto* packed = static_cast<C*>(
        thread_scratch(1, static_cast<std::size_t>(product.packed_elements()) * sizeof(C)));
    auto* sums = static_cast<float*>(thread_scratch(2, tile * tile * sizeof(float)));
    std::fill_n(dense, elements, C(0.0F));
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t first = block * block_tokens;
      const std::int64_t count = std::min(block_tokens, tokens - first);
      for (std::int64_t t = 0; t < count; ++t) {
        convert(b.data<T>() + (first + t) * n + column, dense + t * tile, columns);
      }
      std::fill(dense + count * tile, dense + elements, C(0.0F));
      packing.run({dense, packed});
      for (std::int64_t row_tile = 0; row_tile < row_tiles; ++row_tile) {
        product.run(left.data<C>() + (block * row_tiles + row_tile) * tile * block_tokens, packed,
                    sums);
        const std::int64_t rows = std::min(tile, m - row_tile * tile);
        for (std::int64_t r = 0; r < rows; ++r) {
          float* total = out.data<float>() + (row_tile * tile + r) * n + column;
          for (std::int64_t c = 0; c < columns; ++c) total[c] += sums[r * tile + c];
        }
      }
    }
  });
  return out;
}

// Adds tokens [first, first + count) to total [column], for columns [column, column + columns).
template <class T>
void add_tokens(const Tensor& a, const Tensor& b, std::int64_t first, std::int64_t count,
                std::int64_t column, std::int64_t columns, float* total) {
  const std::int64_t n = a.shape(1);
  auto* rows =
      static_cast<float*>(thread_scratch(0, static_cast<std::size_t>(3 * columns) * sizeof(float)));
  float *of_a = rows, *of_b = rows + columns, *sum = rows + 2 * columns;
  for (std::int64_t begin = 0; begin < count; begin += block_tokens) {
    std::fill_n(sum, columns, 0.0F);
    for (std::int64_t t = begin; t < std::min(begin + block_tokens, count); ++t) {
      convert(a.data<T>() + (first + t) * n + column, of_a, columns);
      if (!b.empty()) {
        convert(b.data<T>() + (first + t) * n + column, of_b, columns);
        for (std::int64_t c = 0; c < columns; ++c) of_a[c] *= of_b[c];
      }
      for (std::int64_t c = 0; c < columns; ++c) sum[c] += of_a[c];
    }
    for (std::int64_t c = 0; c < columns; ++c) total[c] += sum[c];
  }
}

}  // namespace

Tensor token_sums(const Tensor& a, const Tensor& b, std::int64_t first) {
  expect(a.shape().size() == 2 && first >= 0 && first <= a.shape(0) &&
             (b.empty() || (a.shape() == b.shape() && a.dtype() == b.dtype())),
         "sums over tokens of {} and {}, {} of them first", a.shape(), b.shape(), first);
  const std::int64_t tokens = a.shape(0), n = a.shape(1);
  const Operation operation(trace::spans::norm, {2 * a.numel(), a.bytes() + b.bytes() + n * 8});
  if (tokens == 0 || n == 0) return Tensor::zeros({2, n}, DType::float32, a.device());
  return dispatch(
      a.device(), [&] { return gpu::token_sums(a, b, first); },
      [&] {
        constexpr std::int64_t at_once = 128;
        Tensor out = Tensor::zeros({2, n}, DType::float32);
        visit_float(a.dtype(), [&](auto type) {
          using T = decltype(type);
          parallel_for(count_of(n, at_once), 1, [&](std::int64_t i) {
            const std::int64_t column = i * at_once, columns = std::min(at_once, n - column);
            float* total = out.data<float>() + column;
            add_tokens<T>(a, b, 0, first, column, columns, total);
            add_tokens<T>(a, b, first, tokens - first, column, columns, total + n);
          });
        });
        return out;
      },
      [&] {
        return Tensor::empty({2, n}, DType::float32, a.device());
      });
}

Tensor token_products(const Tensor& a, const Tensor& b) {
  expect(a.shape().size() == 2 && b.shape().size() == 2 && a.shape(0) == b.shape(0) &&
             a.dtype() == b.dtype(),
         "products of tokens {} and {}", a.shape(), b.shape());
  const std::int64_t tokens = a.shape(0), m = a.shape(1), n = b.shape(1);
  const Operation operation(trace::spans::product,
                            {2 * tokens * m * n, a.bytes() + b.bytes() + m * n * 4});
  if (tokens == 0 || m == 0 || n == 0) return Tensor::zeros({m, n}, DType::float32, a.device());
  return dispatch(
      a.device(), [&] { return gpu::token_products(a, b); },
      [&] {
        return visit_float(a.dtype(), [&](auto type) {
          using T = decltype(type);
          if (compute_dtype(a.dtype()) == DType::bfloat16) return products<T, BFloat16>(a, b);
          return products<T, float>(a, b);
        });
      },
      [&] {
        const DType compute = compute_dtype(a.dtype(), a.device());
        Tensor out = Tensor::empty({m, n}, DType::float32, a.device());
        if (!a.device().is_cuda()) {
          const Tensor left = Tensor::empty(
              {count_of(tokens, block_tokens) * count_of(m, tile) * tile * block_tokens}, compute,
              a.device());
        }
        return out;
      });
}

}  // namespace reelmesh::ops

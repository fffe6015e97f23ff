#include "ops/token_products.hpp"

#include <algorithm>

#include "ops/cuda/backward.hpp"
#include "ops/onednn.hpp"
#include "ops/operation.hpp"
#include "ops/packing.hpp"
#include "ops/parallel.hpp"
#include "ops/pointwise.hpp"
#include "tensor/convert.hpp"
#include "tensor/dispatch.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::ops {
namespace {

// Rows of a tile are those of a LoRA of usual rank; calls of wider tiles cost less beside their
// work.
constexpr std::int64_t block_tokens = 512, tile = 64, tile_columns = 192;
// Blocks whose sums are added before they go to memory.
constexpr std::int64_t blocks_together = 4;

std::int64_t count_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// Products of one block of tokens: of its tiles, padded with zeros. The last block may be smaller.
// Tiles have one shape, so that the bits of an element depend neither on the number of rows and
// columns nor on its place among them.
struct BlockProduct {
  BlockProduct(std::int64_t tokens, DType compute)
      : depth(depth_of(tokens)),
        product(tile, tile_columns, depth, compute),
        packing(product.packing(false, tile_columns)) {}

  static std::int64_t depth_of(std::int64_t tokens) { return count_of(tokens, 32) * 32; }
  std::int64_t depth;  // tokens with padding
  TileProduct product;
  Primitive packing;
};

// Columns [column, column + columns) of tokens [first, first + count), transposed: [column, depth].
template <class T, class C>
void pack_transposed(const Tensor& a, std::int64_t first, std::int64_t count, std::int64_t column,
                     std::int64_t columns, std::int64_t depth, C* into) {
  constexpr std::int64_t together = 32;  // a cache line of 16-bit values
  C rows[together][tile];
  for (std::int64_t t = 0; t < count; t += together) {
    const std::int64_t some = std::min(together, count - t);
    for (std::int64_t i = 0; i < some; ++i) {
      convert(a.data<T>() + (first + t + i) * a.shape(1) + column, rows[i], columns);
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t i = 0; i < some; ++i) into[c * depth + t + i] = rows[i][c];
    }
  }
}

template <class T, class C>
Tensor products(const Tensor& a, const Tensor& b) {
  const std::int64_t tokens = a.shape(0), m = a.shape(1), n = b.shape(1);
  const std::int64_t blocks = count_of(tokens, block_tokens), row_tiles = count_of(m, tile);
  const auto count = [&](std::int64_t block) {
    return std::min(block_tokens, tokens - block * block_tokens);
  };
  const BlockProduct whole(count(0), dtype_of<C>()), last(count(blocks - 1), dtype_of<C>());
  const auto product_of = [&](std::int64_t block) -> const BlockProduct& {
    return block + 1 < blocks ? whole : last;
  };
  // aᵀ in tiles [block][row tile][row][token], with zeros where there are no rows or tokens.
  Tensor left = Tensor::empty({blocks * row_tiles * tile * block_tokens}, dtype_of<C>());
  C* const left_tiles = left.data<C>();
  const auto left_tile = [&](std::int64_t block, std::int64_t row_tile) {
    return left_tiles + (block * row_tiles + row_tile) * tile * block_tokens;
  };
  parallel_for(blocks * row_tiles, 1, [&](std::int64_t task) {
    const std::int64_t block = task / row_tiles, row = task % row_tiles * tile;
    const std::int64_t rows = std::min(tile, m - row), depth = product_of(block).depth;
    C* into = left_tile(block, task % row_tiles);
    if (rows < tile || count(block) < depth) std::fill_n(into, tile * depth, C(0.0F));
    pack_transposed<T>(a, block * block_tokens, count(block), row, rows, depth, into);
  });
  Tensor out = Tensor::empty({m, n}, DType::float32);
  // A task has a tile of columns with some of the tiles of rows.
  const std::int64_t column_tiles = count_of(n, tile_columns);
  const std::int64_t shares =
      std::min(row_tiles, count_of(4 * omp_get_max_threads(), column_tiles));
  parallel_for(column_tiles * shares, 1, [&](std::int64_t task) {
    const std::int64_t column = task / shares * tile_columns;
    const std::int64_t columns = std::min(tile_columns, n - column);
    const std::int64_t first_tile = row_tiles * (task % shares) / shares;
    const std::int64_t end_tile = row_tiles * (task % shares + 1) / shares;
    const auto scratch = [](std::size_t slot, std::int64_t bytes) {
      return thread_scratch(slot, static_cast<std::size_t>(bytes));
    };
    constexpr auto size = static_cast<std::int64_t>(sizeof(C));
    constexpr std::int64_t elements = tile * tile_columns;
    auto* dense = static_cast<C*>(scratch(0, whole.depth * tile_columns * size));
    const std::int64_t packed_elements =
        std::max(whole.product.packed_elements(), last.product.packed_elements());
    auto* packed = static_cast<C*>(scratch(1, blocks_together * packed_elements * size));
    auto* sums = static_cast<float*>(scratch(2, 2 * elements * size_of(DType::float32)));
    float* totals = sums + elements;
    std::fill_n(dense, whole.depth * tile_columns, C(0.0F));
    for (std::int64_t block = 0; block < blocks; block += blocks_together) {
      const std::int64_t some = std::min(blocks_together, blocks - block);
      for (std::int64_t i = 0; i < some; ++i) {
        const std::int64_t first = (block + i) * block_tokens, tokens_here = count(block + i);
        for (std::int64_t t = 0; t < tokens_here; ++t) {
          convert(b.data<T>() + (first + t) * n + column, dense + t * tile_columns, columns);
        }
        const BlockProduct& of_block = product_of(block + i);
        std::fill(dense + tokens_here * tile_columns, dense + of_block.depth * tile_columns,
                  C(0.0F));
        of_block.packing.run({dense, packed + i * packed_elements});
      }
      for (std::int64_t row_tile = first_tile; row_tile < end_tile; ++row_tile) {
        const std::int64_t rows = std::min(tile, m - row_tile * tile);
        float* into = out.data<float>() + row_tile * tile * n + column;
        if (block == 0) {
          std::fill_n(totals, elements, 0.0F);
        } else {
          for (std::int64_t r = 0; r < rows; ++r) {
            std::copy_n(into + r * n, columns, totals + r * tile_columns);
          }
        }
        for (std::int64_t i = 0; i < some; ++i) {
          product_of(block + i).product.run(left_tile(block + i, row_tile),
                                            packed + i * packed_elements, sums);
          add_elements(totals, sums, elements);
        }
        for (std::int64_t r = 0; r < rows; ++r) {
          std::copy_n(totals + r * tile_columns, columns, into + r * n);
        }
      }
    }
  });
  return out;
}

// As products() takes it.
void note_scratch(std::int64_t tokens, DType compute) {
  const std::int64_t depth = BlockProduct::depth_of(std::min(tokens, block_tokens));
  Ledger& ledger = Ledger::current();
  ledger.note_scratch(0, depth * tile_columns * size_of(compute));
  ledger.note_scratch(1, blocks_together * packed_matrix_bytes(depth, tile_columns, compute,
                                                               ledger.precision().packed_for));
  ledger.note_scratch(2, 2 * tile * tile_columns * size_of(DType::float32));
}

// Adds tokens [first, first + count) to total [column], for columns [column, column + columns).
// Those of a block in float64: many of a text are equal, and so would be the errors of their
// roundings.
template <class T>
void add_tokens(const Tensor& a, const Tensor& b, std::int64_t first, std::int64_t count,
                std::int64_t column, std::int64_t columns, float* total) {
  const std::int64_t n = a.shape(1);
  auto* sum = static_cast<double*>(
      thread_scratch(0, static_cast<std::size_t>(2 * columns) * sizeof(double)));
  float *of_a = reinterpret_cast<float*>(sum + columns), *of_b = of_a + columns;
  for (std::int64_t begin = 0; begin < count; begin += block_tokens) {
    std::fill_n(sum, columns, 0.0);
    for (std::int64_t t = begin; t < std::min(begin + block_tokens, count); ++t) {
      convert(a.data<T>() + (first + t) * n + column, of_a, columns);
      if (!b.empty()) {
        convert(b.data<T>() + (first + t) * n + column, of_b, columns);
        for (std::int64_t c = 0; c < columns; ++c) of_a[c] *= of_b[c];
      }
      for (std::int64_t c = 0; c < columns; ++c) sum[c] += of_a[c];
    }
    for (std::int64_t c = 0; c < columns; ++c) total[c] += static_cast<float>(sum[c]);
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
          note_scratch(tokens, compute);
        }
        return out;
      });
}

}  // namespace reelmesh::ops

#include "ops/amx.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace reelmesh::ops::amx {
namespace {

std::atomic<bool> plain = false;

constexpr std::int64_t value_bytes = sizeof(BFloat16);
constexpr std::int64_t row_bytes = step_values * value_bytes;

// Bytes of a block of `count` rows or columns.
std::int64_t block_bytes(std::int64_t count, std::int64_t inner) {
  return packed_elements(count, inner) * value_bytes;
}

// Packs a tile of B by one of the kernels. Where the matrix ends within the tile, after `height`
// rows or `width` values, the rest is zeros.
template <std::int64_t rows, std::int64_t values>
void pack_tile(void (*pack)(const BFloat16*, std::int64_t, std::byte*), const BFloat16* from,
               std::int64_t stride, std::int64_t height, std::int64_t width, std::byte* tile) {
  if (height == rows && width == values) return pack(from, stride, tile);
  alignas(64) BFloat16 padded[rows * values] = {};
  for (std::int64_t r = 0; r < height; ++r) {
    std::copy_n(from + r * stride, width, padded + r * values);
  }
  pack(padded, values, tile);
}

}  // namespace

const Kernels& kernels() { return plain ? plain_kernels() : processor_kernels(); }
void use_plain_kernels(bool use) { plain = use; }
bool uses_plain_kernels() { return plain; }

void pack_left(const BFloat16* rows, std::int64_t stride, std::int64_t count, std::int64_t inner,
               std::byte* packed) {
  const Kernels& use = kernels();
  const std::int64_t steps = step_count(inner);
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t some = std::min(block, count - first), tiles = tile_count(some);
    const std::int64_t step_bytes = tiles * tile_bytes;
    std::byte* into = packed + block_bytes(first, inner);
    for (std::int64_t r = 0; r < tiles * tile_rows; ++r) {
      std::byte* to = into + r * row_bytes;
      if (r >= some) {
        for (std::int64_t s = 0; s < steps; ++s) std::memset(to + s * step_bytes, 0, row_bytes);
        continue;
      }
      const BFloat16* from = rows + (first + r) * stride;
      const std::int64_t whole = inner / step_values;
      use.copy_row(from, whole, to, step_bytes);
      if (whole < steps) {
        const auto rest = static_cast<std::size_t>((inner - whole * step_values) * value_bytes);
        std::memset(to + whole * step_bytes, 0, row_bytes);
        std::memcpy(to + whole * step_bytes, from + whole * step_values, rest);
      }
    }
  }
}

void pack_right_transposed(const BFloat16* rows, std::int64_t stride, std::int64_t inner,
                           std::int64_t columns, std::byte* packed) {
  const Kernels& use = kernels();
  const std::int64_t steps = step_count(inner);
  for (std::int64_t first = 0; first < columns; first += block) {
    const std::int64_t tiles = tile_count(std::min(block, columns - first));
    std::byte* into = packed + block_bytes(first, inner);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t column = first + tile * tile_rows;
      const std::int64_t height = std::min(tile_rows, columns - column);
      for (std::int64_t s = 0; s < steps; ++s) {
        const BFloat16* from = rows + column * stride + s * step_values;
        std::byte* to = into + (s * tiles + tile) * tile_bytes;
        const std::int64_t width = std::min(step_values, inner - s * step_values);
        pack_tile<tile_rows, step_values>(use.transpose, from, stride, height, width, to);
      }
    }
  }
}

void pack_right(const BFloat16* rows, std::int64_t stride, std::int64_t inner, std::int64_t columns,
                std::byte* packed) {
  const Kernels& use = kernels();
  const std::int64_t steps = step_count(inner);
  for (std::int64_t first = 0; first < columns; first += block) {
    const std::int64_t tiles = tile_count(std::min(block, columns - first));
    std::byte* into = packed + block_bytes(first, inner);
    for (std::int64_t s = 0; s < steps; ++s) {
      for (std::int64_t tile = 0; tile < tiles; ++tile, into += tile_bytes) {
        const std::int64_t column = first + tile * tile_rows;
        const BFloat16* from = rows + s * step_values * stride + column;
        const std::int64_t height = std::min(step_values, inner - s * step_values);
        const std::int64_t width = std::min(tile_rows, columns - column);
        pack_tile<step_values, tile_rows>(use.interleave, from, stride, height, width, into);
      }
    }
  }
}

}  // namespace reelmesh::ops::amx

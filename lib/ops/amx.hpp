#pragma once
// Matrix products of bfloat16 values by AMX, the tile instructions of Intel's processors from
// Sapphire Rapids on (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
// TDPBF16PS). One instruction multiplies a tile of 16 x 32 values of A with one of 32 x 16 values
// of B and adds the sums, float32, to a tile of C. Operands are packed in tiles of 1 KiB:
//
//   A, left:    [step][row tile][16 rows][32 values]
//   B, right:   [step][column tile][16 pairs of rows][16 columns][2]
//   C, results: [column tile][row tile][16][16], float32
//
// with one or two row tiles and column tiles; a step is 32 values of the inner dimension. Every
// result is the sum over the steps in order, so its bits depend only on its own row of A and column
// of B.
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.hpp"

namespace reelmesh::ops {
enum class Activation;
}

namespace reelmesh::ops::amx {

constexpr std::int64_t tile_rows = 16;     ///< rows of A and C, columns of B and C
constexpr std::int64_t step_values = 32;   ///< values of the inner dimension in a tile
constexpr std::int64_t tile_bytes = 1024;  ///< of A, B or C
/// Rows of a block of A and columns of a block of B: two tiles. The last block may have fewer.
constexpr std::int64_t block = 2 * tile_rows;

constexpr std::int64_t step_count(std::int64_t inner) {
  return (inner + step_values - 1) / step_values;
}
constexpr std::int64_t tile_count(std::int64_t count) {
  return (count + tile_rows - 1) / tile_rows;
}
/// Elements of `count` rows of A or columns of B, padded with zeros to whole tiles. The block that
/// begins at row or column i (a multiple of `block`) begins at element packed_elements(i, inner).
constexpr std::int64_t packed_elements(std::int64_t count, std::int64_t inner) {
  return tile_count(count) * tile_rows * step_count(inner) * step_values;
}

/// The rows of one block of scores (Kernels::softmax). Rows beyond `rows` are padding.
struct Softmax {
  float* scores;  ///< C of the products q·k: [key tile][row tile][16][16]; changed
  std::int64_t row_tiles, rows, keys;
  float scale;        ///< of the scores, times log2(e)
  const float* bias;  ///< [row, bias_stride], added to scale / log2(e) times the scores; or null
  std::int64_t bias_stride;
  float *largest, *sum;  ///< [row]: of all blocks so far
  float* totals;         ///< C of the weighted values so far: [channel tile][row tile][16][16]
  std::int64_t channel_tiles;
  std::byte* weights;  ///< out: A of `keys` inner values: 2^(score − largest)
};

/// C = A·B, or C += A·B, of one block of A and one of B: 1 or 2 row tiles and column tiles.
struct Product {
  const std::byte* a;
  std::int64_t row_tiles;
  const std::byte* b;
  std::int64_t column_tiles, steps;
  float* c;
  bool add;
  /// What the following products read, fetched into the second-level cache meanwhile: in each step
  /// `lines` lines of 64 bytes from `next` on, which moves with b.
  const std::byte* next = nullptr;
  std::int64_t lines = 0;
};

/// Writes activation(C·factor + bias) to `rows` rows of `columns` values, `stride` elements apart.
struct Finish {
  const float* c;
  std::int64_t row_tiles, rows, columns;
  const float* factors;  ///< [row] or null
  const float* bias;     ///< [columns] or null
  Activation activation;
  BFloat16* out;
  std::int64_t stride;
};

/// The instructions, and what is computed between them.
struct Kernels {
  /// Calls that a thread makes before and after it uses the others.
  void (*begin)();
  void (*end)();
  /// Writes the results of an earlier product meanwhile, unless `earlier` is null.
  void (*product)(const Product& product, const Finish* earlier);
  /// Copies a row of whole steps of A into the tiles, step_bytes apart.
  void (*copy_row)(const BFloat16* from, std::int64_t steps, std::byte* to,
                   std::int64_t step_bytes);
  /// Packs one tile of B from its transpose: 16 rows (columns of B) of 32 values, stride elements
  /// apart.
  void (*transpose)(const BFloat16* from, std::int64_t stride, std::byte* tile);
  /// Packs one tile of B: 32 rows of 16 values, stride elements apart.
  void (*interleave)(const BFloat16* from, std::int64_t stride, std::byte* tile);
  void (*finish)(const Finish& finish);
  /// Online softmax of one block of scores: updates largest, sum and totals, and gives the weights.
  void (*softmax)(const Softmax& block);
};

/// Whether the operating system lets this process use the processor's tiles. Asks for it at the
/// first call.
bool permitted();
/// The processor's instructions. Only with permitted() and AVX512_BF16, which all processors with
/// AMX have.
const Kernels& processor_kernels();
/// Plain C++ in place of the instructions, with the same bits, on any processor: for tests.
const Kernels& plain_kernels();
/// processor_kernels(), or plain_kernels() after use_plain_kernels(true).
const Kernels& kernels();
/// For tests, before layers are made: from now on ops compute as on a processor with AMX, with
/// plain_kernels().
void use_plain_kernels(bool use);
bool uses_plain_kernels();

/// Packs rows of A: `count` rows of `inner` values, stride elements apart.
void pack_left(const BFloat16* rows, std::int64_t stride, std::int64_t count, std::int64_t inner,
               std::byte* packed);
/// Packs B from its transpose: `columns` rows of `inner` values, stride elements apart.
void pack_right_transposed(const BFloat16* rows, std::int64_t stride, std::int64_t inner,
                           std::int64_t columns, std::byte* packed);
/// Packs B: `inner` rows of `columns` values, stride elements apart.
void pack_right(const BFloat16* rows, std::int64_t stride, std::int64_t inner, std::int64_t columns,
                std::byte* packed);

/// In its scope the calling thread may use kernels().
class Scope {
 public:
  Scope() { kernels().begin(); }
  ~Scope() { kernels().end(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

}  // namespace reelmesh::ops::amx

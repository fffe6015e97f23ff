#pragma once
// How the ops use oneDNN: primitives of one fixed tile, made for one thread, run by many. A row of
// a product then has the same bits whatever the number of rows, threads or ranks.
#include <cstddef>
#include <dnnl.hpp>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// The CPU engine.
const dnnl::engine& engine();

/// The type that products are computed in for tensors of `dtype`: bfloat16 where the processor has
/// matrix tiles for it (AMX), float32 otherwise, which is exact for products of such numbers and
/// was 1.7 times as fast with AVX-512's bfloat16 instructions at hand. Sums are float32 always.
DType compute_dtype(DType dtype);
/// For tests: takes bfloat16 products, if oneDNN can, from here on, whatever is faster.
void prefer_bfloat16_products(bool prefer);

/// Whether a row of a product has the same bits in a tile of any height. Where it has not (kernels
/// without AVX-512 take several rows at a time in ways of their own), all tiles must have one
/// height.
bool rows_do_not_depend_on_their_number(DType compute);
/// The height of the product for the last `rest` of the rows, of tiles of so many rows otherwise.
std::int64_t rows_of_last_tile(std::int64_t tile_rows, std::int64_t rest, DType compute);

dnnl::memory::data_type onednn_type(DType dtype);

/// While it lives, primitives that this thread makes or runs are for one thread.
class ForOneThread {
 public:
  ForOneThread();
  ~ForOneThread();
  ForOneThread(const ForOneThread&) = delete;
  ForOneThread& operator=(const ForOneThread&) = delete;

 private:
  int before_;
};

dnnl::primitive_attr user_scratchpad();

/// Memory of the calling thread, kept from call to call. `slot` tells buffers in use at once apart.
void* thread_scratch(std::size_t slot, std::size_t bytes);

/// A primitive and what its arguments look like; the scratchpad is the calling thread's. Cheap to
/// copy.
class Primitive {
 public:
  Primitive() = default;
  /// arguments: index (DNNL_ARG_SRC, …) and description of each but the scratchpad.
  Primitive(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad,
            std::vector<std::pair<int, dnnl::memory::desc>> arguments);
  /// On the calling thread, with the data of the arguments in their order.
  void run(std::initializer_list<const void*> data) const;

 private:
  struct Made;
  std::shared_ptr<const Made> made_;
};

/// Copies an argument as described by `from` into one as described by `to`.
Primitive reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

/// dst[m, n] float32 = src[m, k]·weights[k, n] for fixed extents; src dense, weights packed.
class TileProduct {
 public:
  /// Rows of the tiles that weights are packed for; the last tile may have fewer.
  static constexpr std::int64_t tile_rows = 64;

  TileProduct() = default;
  TileProduct(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype);
  std::int64_t columns() const { return n_; }
  /// Of packed weights, in elements of the product's type: a multiple of 64.
  std::int64_t packed_elements() const;
  /// Packs weights (the first argument) given as [n, k] (transposed) or [k, n], dense or with this
  /// leading stride, into the second.
  Primitive packing(bool transposed, std::int64_t stride) const;
  void run(const void* src, const void* packed, float* dst) const;

 private:
  std::int64_t n_ = 0, k_ = 0;
  DType dtype_ = DType::float32;
  dnnl::memory::desc weights_;
  Primitive primitive_;
};

}  // namespace reelmesh::ops

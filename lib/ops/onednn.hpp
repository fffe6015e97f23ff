#pragma once
// How the ops use oneDNN: primitives of one fixed tile, made for one thread, run by many. A row of
// a product then has the same bits whatever the number of rows, threads or ranks.
#include <cstddef>
#include <dnnl.hpp>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// The CPU engine.
const dnnl::engine& engine();

/// The type that products are computed in for tensors of `dtype`: bfloat16 only where the processor
/// has AVX-512 (oneDNN refuses it elsewhere), float32 otherwise. Sums are float32 always.
DType compute_dtype(DType dtype);

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

/// Runs a primitive on the calling thread; `scratchpad` describes its user scratchpad.
void execute(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
             std::vector<std::pair<int, dnnl::memory>> arguments);

/// Copies `plain` (described by `from`) into `packed` (described by `to`), on the calling thread.
void reorder(const dnnl::memory::desc& from, const void* plain, const dnnl::memory::desc& to,
             void* packed);

/// dst[m, n] float32 = src[m, k]·weights[k, n] for fixed extents; src dense, weights packed.
class TileProduct {
 public:
  TileProduct() = default;
  TileProduct(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype);
  std::size_t packed_bytes() const;
  /// Packs weights given as [n, k] (transposed) or [k, n], dense or with this leading stride.
  void pack(const void* weights, bool transposed, std::int64_t stride, void* packed) const;
  void run(const void* src, const void* packed, float* dst) const;

 private:
  std::int64_t m_ = 0, n_ = 0, k_ = 0;
  DType dtype_ = DType::float32;
  dnnl::matmul::primitive_desc description_;
  dnnl::matmul primitive_;
};

}  // namespace reelmesh::ops

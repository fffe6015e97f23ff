#pragma once
// How the ops use oneDNN: each primitive computes one tile of a fixed shape on one thread, and many
// threads run it. So a row of a matrix product (GEMM) has the same bits for any number of rows,
// threads or ranks.
#include <compare>
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

/// Input type of GEMMs, convolutions and attention on the CPU for tensors of `dtype`: bfloat16 for
/// bfloat16 if bfloat16_products() says so, otherwise float32, which multiplies bfloat16 values
/// exactly. Sums are always float32.
DType compute_dtype(DType dtype);
/// The same for tensors on `device`: in a dry run that of the processor that it is for.
DType compute_dtype(DType dtype, Device device);

/// Whether GEMMs and attention with inputs of this type use AMX's kernels (ops/amx.hpp) and not
/// oneDNN's.
bool uses_amx(DType compute);

/// Whether the bits of a row of a GEMM are the same for tiles of any height: float32 with AVX-512
/// or by plain_product(), and bfloat16 with AVX512_BF16 without AMX. Other kernels process rows in
/// groups that depend on the tile's height; then all tiles must have the same height.
bool row_bits_independent_of_tile_height(DType compute);
/// Height of the GEMM for the last `rest` rows, if all other tiles have `tile_rows` rows.
std::int64_t rows_of_last_tile(std::int64_t tile_rows, std::int64_t rest, DType compute);

dnnl::memory::data_type onednn_type(DType dtype);

/// In its scope, primitives created or run by the calling thread use one OpenMP thread.
class SingleThreadScope {
 public:
  SingleThreadScope();
  ~SingleThreadScope();
  SingleThreadScope(const SingleThreadScope&) = delete;
  SingleThreadScope& operator=(const SingleThreadScope&) = delete;

 private:
  int before_;
};

dnnl::primitive_attr user_scratchpad();

/// A matrix product. oneDNN 2 describes the operation first; 3 does not.
inline dnnl::matmul::primitive_desc matmul_description(const dnnl::memory::desc& src,
                                                       const dnnl::memory::desc& weights,
                                                       const dnnl::memory::desc& dst,
                                                       const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), src, weights, dst, attributes};
#else
  return {{src, weights, dst}, attributes, engine()};
#endif
}

/// Thread-local buffer of at least `bytes`, aligned to 64 bytes and reused by later calls with the
/// same slot. Buffers in use at the same time need different slots (0 … 6).
void* thread_scratch(std::size_t slot, std::size_t bytes);

/// A oneDNN primitive with the descriptors of its arguments; uses a thread-local scratchpad. Cheap
/// to copy.
class Primitive {
 public:
  Primitive() = default;
  /// arguments: index (DNNL_ARG_SRC, …) and descriptor of each argument except the scratchpad.
  Primitive(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad,
            std::vector<std::pair<int, dnnl::memory::desc>> arguments);
  /// Runs on the calling thread. data: addresses of the arguments, in the constructor's order.
  void run(std::initializer_list<const void*> data) const;

 private:
  struct Made;
  std::shared_ptr<const Made> made_;
};

/// Copies data from layout `from` to layout `to`; arguments of run(): source, target.
Primitive reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

/// A GEMM of fixed shape: dst[m, n] float32 = src[m, k]·weights[k, n]; src dense, weights packed.
/// On other processors than x86 it is a plain_product(), and packed weights are dense.
class TileProduct {
 public:
  /// What else a GEMM may do.
  struct Form {
    bool adds = false;           ///< dst += src·weights
    bool dense_weights = false;  ///< weights are dense rows [k, n] instead of packed
    auto operator<=>(const Form&) const = default;
  };
  /// Rows of the tiles that weights are packed for; the last tile may have fewer.
  static constexpr std::int64_t tile_rows = 64;

  TileProduct() = default;
  TileProduct(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype)
      : TileProduct(m, n, k, dtype, {}) {}
  TileProduct(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, Form form);
  std::int64_t columns() const { return n_; }
  /// Size of packed weights in elements of dtype: a multiple of 64.
  std::int64_t packed_elements() const;
  /// Whether both take the same packed weights.
  bool packs_as(const TileProduct& other) const { return weights_ == other.weights_; }
  /// Reorder that packs weights [k, n], or [n, k] if transposed. stride: elements from row to row
  /// of the source. Arguments of run(): source, packed weights.
  Primitive packing(bool transposed, std::int64_t stride) const;
  void run(const void* src, const void* weights, float* dst) const;

 private:
  std::int64_t m_ = 0, n_ = 0, k_ = 0;
  DType dtype_ = DType::float32;
  bool adds_ = false;
  dnnl::memory::desc weights_;
  Primitive primitive_;
};

}  // namespace reelmesh::ops

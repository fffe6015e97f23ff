#pragma once
// Matrix products by cuBLASLt: descriptors, proposed algorithms, and their execution. It is loaded
// at the first use.
#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/linear.hpp"
#include "tensor/cuda/handles.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::gpu::blas {

/// What is done with the sums before they are rounded.
struct Epilogue {
  bool bias = false, gelu = false;
  auto operator<=>(const Epilogue&) const = default;
};

/// y[row, out] = epilogue(x[row, in]·W[out, in]ᵀ), all of one type, with sums in float32. In a
/// backward pass x·W, with W[in, out].
struct Problem {
  DType dtype;
  bool tf32;  ///< float32 inputs may be rounded to TF32
  std::int64_t in, out;
  ops::Pass pass;
  Epilogue epilogue;
  auto operator<=>(const Problem&) const = default;
};

/// Addresses on the device. bias: null if the epilogue has none.
struct Operands {
  const void *x, *weight, *bias;
  void* y;
};

using Algorithm = cublasLtMatmulAlgo_t;

void destroy(cublasLtHandle_t library);
void destroy(cublasLtMatmulDesc_t operation);
void destroy(cublasLtMatrixLayout_t layout);
struct Destroy {
  void operator()(auto made) const { destroy(made); }
};
using Library = Handle<cublasLtHandle_t, Destroy{}>;
using Operation = Handle<cublasLtMatmulDesc_t, Destroy{}>;
using MatrixLayout = Handle<cublasLtMatrixLayout_t, Destroy{}>;

Library make_library(Device device);
/// "13.1.0", of the library that is loaded.
std::string version_text();

/// A problem on one device, for any number of rows.
class Product {
 public:
  /// Bytes that every algorithm may use beside its operands.
  static constexpr std::int64_t workspace_bytes = 32 << 20;
  static constexpr int max_proposals = 16;

  /// library and workspace, of workspace_bytes on the device, must outlive the object.
  Product(cublasLtHandle_t library, Device device, const Problem& problem, void* workspace);

  /// The algorithms that cuBLASLt proposes for this number of rows, by its estimate the fastest
  /// first; at most max_proposals. split_k: whether sums along `in` may be split (split-K). Throws
  /// Error(unavailable) if there are none.
  std::vector<Algorithm> proposals(std::int64_t rows, bool split_k);
  /// Whether the algorithm supports this number of rows.
  bool takes(const Algorithm& algorithm, std::int64_t rows) const;
  /// Enqueues the product on the device's stream.
  cublasStatus_t enqueue(const Algorithm& algorithm, const Operands& operands, std::int64_t rows);
  /// The same; throws Error if it fails.
  void run(const Algorithm& algorithm, const Operands& operands, std::int64_t rows);

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value);

  cublasLtHandle_t library_;
  Device device_;
  Problem problem_;
  void* workspace_;
  Operation operation_;
  MatrixLayout weight_;
};

}  // namespace reelmesh::gpu::blas

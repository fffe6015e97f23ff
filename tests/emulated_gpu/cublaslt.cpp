// The emulated cuBLASLt: descriptors, heuristics and matrix products.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <thread>

#include "emulated_gpu/product.hpp"
#include "emulated_gpu/settings.hpp"
#include "emulated_gpu/stream.hpp"
#include "ops/math.hpp"
#include "tensor/convert.hpp"

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  bool tf32 = false;
  bool has_bias() const {
    return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
  }
  bool has_gelu() const {
    return epilogue == CUBLASLT_EPILOGUE_GELU || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
  }
};
// Column-major: element (i, j) is at i + j·leading.
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::int64_t rows, columns, leading;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of a, b, c and d
};

namespace reelmesh::emulated {
namespace {

using Operation = cublasLtMatmulDescOpaque_t;
using MatrixLayout = cublasLtMatrixLayoutOpaque_t;

// An algorithm: the alignment that it requires, the number of split-K parts, the number of partial
// sums of each part, and the size of its workspace, which no other product may use at the same
// time.
struct Algorithm {
  std::uint32_t alignment[4];
  std::int32_t pieces, partial_sums;
  std::uint64_t workspace;
};

// An algorithm with another order of sums is the best proposal for most numbers of rows: a caller
// that lets the number of rows of a rank decide gets other bits on other numbers of ranks.
constexpr std::int32_t orders = 3;
std::int32_t best_order(std::int64_t rows) {
  return rows % 4096 == 0 ? 1 : 1 + static_cast<std::int32_t>(rows % orders);
}
// Large products take this long, except by the algorithm with the most partial sums.
constexpr std::int64_t large_product = 1 << 20;
constexpr std::chrono::milliseconds time_of_large_product(20);
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr std::uint64_t workspace_bytes = 1 << 10;

DType tensor_dtype(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_16F:
      return DType::float16;
    case CUDA_R_16BF:
      return DType::bfloat16;
    default:
      return DType::float32;
  }
}

// Elements from the first to the last, with the gaps between columns.
std::int64_t extent(const MatrixLayout& m) {
  return m.rows == 0 || m.columns == 0 ? 0 : (m.columns - 1) * m.leading + m.rows;
}

cublasStatus_t check(const Operation& operation, const MatrixLayout& a, const MatrixLayout& b,
                     const MatrixLayout& c, const MatrixLayout& d) {
  const std::int64_t m = operation.a == CUBLAS_OP_N ? a.rows : a.columns,
                     k = operation.a == CUBLAS_OP_N ? a.columns : a.rows,
                     other = operation.b == CUBLAS_OP_N ? b.rows : b.columns,
                     n = operation.b == CUBLAS_OP_N ? b.columns : b.rows;
  if (k != other || d.rows != m || d.columns != n || c.rows != m || c.columns != n) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const MatrixLayout* x : {&a, &b, &c, &d}) {
    if (x->rows <= 0 || x->columns <= 0 || x->leading < x->rows) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (a.type != b.type || c.type != d.type || (d.type != a.type && d.type != CUDA_R_32F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// Whether the whole matrix lies within one allocated block of a device.
bool on_device(const void* address, const MatrixLayout& m) {
  const auto block = Memory::instance().find(address);
  if (!block || block->free_requested) return false;
  const auto* begin = static_cast<const std::byte*>(address);
  return extent(m) * size_of(tensor_dtype(m.type)) <= block->address + block->bytes - begin;
}

struct Product {
  Operation operation;
  MatrixLayout a, b, c, d;
  const std::byte *from_a, *from_b, *from_c;
  std::byte* into;
  float alpha, beta;
  std::byte* workspace;
  std::int64_t pieces;  ///< each is summed by itself
  bool slow;

  // Calls f(i, j, value) for all elements of op(m).
  template <class F>
  static void each(const MatrixLayout& m, const std::byte* from, bool transposed, F&& f) {
    const DType dtype = tensor_dtype(m.type);
    std::vector<float> column(static_cast<std::size_t>(m.rows));
    for (std::int64_t j = 0; j < m.columns; ++j) {
      convert(from + j * m.leading * size_of(dtype), dtype, column.data(), DType::float32, m.rows);
      for (std::int64_t i = 0; i < m.rows; ++i) {
        const float x = column[static_cast<std::size_t>(i)];
        transposed ? f(j, i, x) : f(i, j, x);
      }
    }
  }

  // An operand as the product uses it: with TF32 rounded to 10 bits of mantissa.
  float as_taken(float x) const {
    if (!operation.tf32) return x;
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return std::bit_cast<float>((bits + 0xfffU + ((bits >> 13) & 1U)) & ~0x1fffU);
  }

  void run() const {
    const std::uint64_t mine = reinterpret_cast<std::uintptr_t>(this);
    if (workspace != nullptr) std::memcpy(workspace, &mine, sizeof(mine));
    const std::int64_t m = d.rows, n = d.columns;
    const std::int64_t inner = operation.a == CUBLAS_OP_N ? a.columns : a.rows;
    RightOperand right(inner, m);
    each(a, from_a, operation.a == CUBLAS_OP_T,
         [&](std::int64_t i, std::int64_t k, float x) { right.at(k, i) = as_taken(x); });
    std::vector<float> rows(static_cast<std::size_t>(inner * n)),
        sums(static_cast<std::size_t>(m * n));
    each(b, from_b, operation.b == CUBLAS_OP_T, [&](std::int64_t k, std::int64_t j, float x) {
      rows[static_cast<std::size_t>(j * inner + k)] = as_taken(x);
    });
    if (slow) std::this_thread::sleep_for(time_of_large_product);
    // Each part is summed by itself, then the parts; bits differ from those of one sum.
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      std::vector<float> some(rows.size()), part(sums.size());
      for (std::int64_t j = 0; j < n; ++j) {
        for (std::int64_t k = piece * inner / pieces; k < (piece + 1) * inner / pieces; ++k) {
          const auto at = static_cast<std::size_t>(j * inner + k);
          some[at] = rows[at];
        }
      }
      right.multiply(some.data(), n, part.data());
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
    }
    finish(sums);
    if (workspace != nullptr && std::memcmp(workspace, &mine, sizeof(mine)) != 0) {
      stop("two products used the same workspace at a time");
    }
  }

  // sums: [column][row].
  void finish(std::vector<float>& sums) const {
    const DType dtype = tensor_dtype(d.type);
    std::vector<float> bias(static_cast<std::size_t>(d.rows));
    if (operation.has_bias()) {
      convert(operation.bias, dtype, bias.data(), DType::float32, d.rows);
    }
    for (float& sum : sums) sum *= alpha;
    if (beta != 0) {
      each(c, from_c, false, [&](std::int64_t i, std::int64_t j, float x) {
        sums[static_cast<std::size_t>(j * d.rows + i)] += beta * x;
      });
    }
    for (std::int64_t j = 0; j < d.columns; ++j) {
      float* column = sums.data() + j * d.rows;
      for (std::int64_t i = 0; i < d.rows; ++i) {
        column[i] += bias[static_cast<std::size_t>(i)];
        if (operation.has_gelu()) column[i] = ops::gelu_tanh(column[i]);
      }
      convert(column, DType::float32, into + j * d.leading * size_of(dtype), dtype, d.rows);
    }
  }
};

template <class T>
std::span<std::byte> member_bytes(T& member) {
  return std::as_writable_bytes(std::span(&member, 1));
}

// members: attribute → the bytes that store its value.
template <class Attribute>
cublasStatus_t set(const std::map<Attribute, std::span<std::byte>>& members, Attribute attribute,
                   const void* value, std::size_t bytes) {
  const auto member = members.find(attribute);
  if (member == members.end() || member->second.size() != bytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(member->second.data(), value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace reelmesh::emulated

using namespace reelmesh::emulated;

std::size_t cublasLtGetVersion() { return 130100; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "an error of cuBLASLt";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (settings().devices == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *operation = new Operation;
  (*operation)->tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return set({{CUBLASLT_MATMUL_DESC_TRANSA, member_bytes(operation->a)},
              {CUBLASLT_MATMUL_DESC_TRANSB, member_bytes(operation->b)},
              {CUBLASLT_MATMUL_DESC_EPILOGUE, member_bytes(operation->epilogue)},
              {CUBLASLT_MATMUL_DESC_BIAS_POINTER, member_bytes(operation->bias)}},
             attribute, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  *layout = new MatrixLayout{type, static_cast<std::int64_t>(rows),
                             static_cast<std::int64_t>(columns), leading};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  return set({{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, member_bytes(preference->workspace)},
              {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, member_bytes(preference->schemes)},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, member_bytes(preference->alignment[0])},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, member_bytes(preference->alignment[1])},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, member_bytes(preference->alignment[2])},
              {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, member_bytes(preference->alignment[3])}},
             attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int max,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (max < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status = check(*operation, *a, *b, *c, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Algorithm algorithm{{}, 1, 1, std::min(workspace_bytes, preference->workspace)};
  std::copy_n(preference->alignment, 4, algorithm.alignment);
  const auto propose = [&](std::int32_t pieces, std::int32_t partial_sums, cublasStatus_t state) {
    if (*found == max) return;
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    algorithm.pieces = pieces;
    algorithm.partial_sums = partial_sums;
    // A proposal with another state has no valid algorithm: algo stays zero.
    if (state == CUBLAS_STATUS_SUCCESS) {
      std::memcpy(&result.algo, &algorithm, sizeof(algorithm));
      result.workspaceSize = algorithm.workspace;
    }
    result.state = state;
  };
  if (max > 1) propose(1, 1, CUBLAS_STATUS_NOT_SUPPORTED);
  const std::int32_t best = best_order(d->columns);
  // Like a fastest algorithm: split-K comes first if the preference allows reductions.
  if (preference->schemes != CUBLASLT_REDUCTION_SCHEME_NONE) {
    propose(2, best, CUBLAS_STATUS_SUCCESS);
  }
  for (std::int32_t i = 0; i < orders; ++i) {
    propose(1, 1 + (best - 1 + i) % orders, CUBLAS_STATUS_SUCCESS);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, std::size_t bytes,
                                                    std::size_t* written) {
  Algorithm chosen;
  std::memcpy(&chosen, algorithm, sizeof(chosen));
  if (attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM || bytes != sizeof(chosen.pieces)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(value, &chosen.pieces, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const cublasStatus_t status = check(*operation, *a, *b, *c, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (d->columns % settings().rows != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  Algorithm chosen;
  std::memcpy(&chosen, algorithm, sizeof(chosen));
  *result = {*algorithm, chosen.workspace, CUBLAS_STATUS_SUCCESS, 1};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t bytes, cudaStream_t stream) {
  const cublasStatus_t status = check(*operation, *a_layout, *b_layout, *c_layout, *d_layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (algorithm == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  Algorithm chosen;
  std::memcpy(&chosen, algorithm, sizeof(chosen));
  if (chosen.pieces == 0) return CUBLAS_STATUS_INVALID_VALUE;  // not proposed successfully
  const void* addresses[] = {a, b, c, d};
  const MatrixLayout* layouts[] = {a_layout, b_layout, c_layout, d_layout};
  for (int i = 0; i < 4; ++i) {
    if (!on_device(addresses[i], *layouts[i]) ||
        reinterpret_cast<std::uintptr_t>(addresses[i]) % chosen.alignment[i] != 0) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const MatrixLayout of_bias{d_layout->type, d_layout->rows, 1, d_layout->rows};
  if (operation->has_bias() && (!on_device(operation->bias, of_bias) ||
                                reinterpret_cast<std::uintptr_t>(operation->bias) % 16 != 0)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (chosen.workspace > bytes || (chosen.workspace > 0 && !Memory::instance().find(workspace))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Product product{
      *operation,
      *a_layout,
      *b_layout,
      *c_layout,
      *d_layout,
      static_cast<const std::byte*>(a),
      static_cast<const std::byte*>(b),
      static_cast<const std::byte*>(c),
      static_cast<std::byte*>(d),
      *static_cast<const float*>(alpha),
      *static_cast<const float*>(beta),
      chosen.workspace > 0 ? static_cast<std::byte*>(workspace) : nullptr,
      chosen.pieces * chosen.partial_sums + (d_layout->columns < settings().few ? 1 : 0),
      d_layout->rows * d_layout->columns >= large_product && chosen.partial_sums < orders};
  return enqueue(stream, {"cublasLtMatmul", [product] { product.run(); }}) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

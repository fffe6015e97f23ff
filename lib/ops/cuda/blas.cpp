#include "ops/cuda/blas.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "tensor/cuda/libraries.hpp"

namespace reelmesh::gpu::blas {
namespace {

// The functions of cuBLASLt that are used.
struct Functions {
#define REELMESH_BLAS(f) REELMESH_LIBRARY_FUNCTION(cuda::cublas_lt(), f)
  REELMESH_BLAS(cublasLtCreate);
  REELMESH_BLAS(cublasLtDestroy);
  REELMESH_BLAS(cublasLtGetStatusString);
  REELMESH_BLAS(cublasLtGetVersion);
  REELMESH_BLAS(cublasLtMatmul);
  REELMESH_BLAS(cublasLtMatmulAlgoCheck);
  REELMESH_BLAS(cublasLtMatmulAlgoConfigGetAttribute);
  REELMESH_BLAS(cublasLtMatmulAlgoGetHeuristic);
  REELMESH_BLAS(cublasLtMatmulDescCreate);
  REELMESH_BLAS(cublasLtMatmulDescDestroy);
  REELMESH_BLAS(cublasLtMatmulDescSetAttribute);
  REELMESH_BLAS(cublasLtMatmulPreferenceCreate);
  REELMESH_BLAS(cublasLtMatmulPreferenceDestroy);
  REELMESH_BLAS(cublasLtMatmulPreferenceSetAttribute);
  REELMESH_BLAS(cublasLtMatrixLayoutCreate);
  REELMESH_BLAS(cublasLtMatrixLayoutDestroy);
#undef REELMESH_BLAS
};

const Functions& functions() {
  static const Functions all;
  return all;
}

void destroy_preference(cublasLtMatmulPreference_t preference) {
  functions().cublasLtMatmulPreferenceDestroy(preference);
}
using Preference = Handle<cublasLtMatmulPreference_t, &destroy_preference>;

void check(cublasStatus_t status, const char* call, Device device) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const bool lacking = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                       status == CUBLAS_STATUS_ARCH_MISMATCH ||
                       status == CUBLAS_STATUS_ALLOC_FAILED;
  fail(lacking ? Status::unavailable : Status::internal, "{} on {} failed: {}", call,
       to_string(device), functions().cublasLtGetStatusString(status));
}

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return CUDA_R_32F;
    case DType::bfloat16:
      return CUDA_R_16BF;
    case DType::float16:
      return CUDA_R_16F;
    default:
      fail(Status::internal, "product of {}", name_of(dtype));
  }
}

MatrixLayout layout(DType dtype, std::int64_t rows, std::int64_t columns, Device device) {
  cublasLtMatrixLayout_t made = nullptr;
  check(functions().cublasLtMatrixLayoutCreate(&made, cuda_type(dtype),
                                               static_cast<std::uint64_t>(rows),
                                               static_cast<std::uint64_t>(columns), rows),
        "cublasLtMatrixLayoutCreate", device);
  return MatrixLayout(made);
}

// Whether the algorithm reports no split-K. The reduction scheme mask should already ensure it.
bool without_split_k(const Algorithm& algorithm) {
  std::int32_t pieces = 1;
  std::size_t written = 0;
  const cublasStatus_t status = functions().cublasLtMatmulAlgoConfigGetAttribute(
      &algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &pieces, sizeof(pieces), &written);
  return status != CUBLAS_STATUS_SUCCESS || pieces <= 1;
}

}  // namespace

void destroy(cublasLtHandle_t library) { functions().cublasLtDestroy(library); }
void destroy(cublasLtMatmulDesc_t operation) { functions().cublasLtMatmulDescDestroy(operation); }
void destroy(cublasLtMatrixLayout_t layout) { functions().cublasLtMatrixLayoutDestroy(layout); }

Library make_library(Device device) {
  cuda::stream(device);  // the device becomes the thread's current one
  cublasLtHandle_t made = nullptr;
  check(functions().cublasLtCreate(&made), "cublasLtCreate", device);
  return Library(made);
}

std::string version_text() { return cuda::version_text(functions().cublasLtGetVersion()); }

// cuBLAS is column-major: yᵀ [out, rows] = W·xᵀ, or Wᵀ·xᵀ in a backward pass.
Product::Product(cublasLtHandle_t library, Device device, const Problem& problem, void* workspace)
    : library_(library), device_(device), problem_(problem), workspace_(workspace) {
  cublasLtMatmulDesc_t made = nullptr;
  const cublasComputeType_t compute =
      problem.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(functions().cublasLtMatmulDescCreate(&made, compute, CUDA_R_32F),
        "cublasLtMatmulDescCreate", device);
  operation_ = Operation(made);
  const bool forward = problem.pass == ops::Pass::forward;
  const cublasOperation_t of_weight = forward ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(CUBLASLT_MATMUL_DESC_TRANSA, of_weight);
  const auto& [bias, gelu] = problem.epilogue;
  const cublasLtEpilogue_t which =
      bias ? (gelu ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
           : (gelu ? CUBLASLT_EPILOGUE_GELU : CUBLASLT_EPILOGUE_DEFAULT);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, which);
  // The heuristic reads the address of the bias: set an aligned one before choosing.
  if (bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(workspace));
  weight_ = forward ? layout(problem.dtype, problem.in, problem.out, device)
                    : layout(problem.dtype, problem.out, problem.in, device);
}

template <class T>
void Product::set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(functions().cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value,
                                                   sizeof(value)),
        "cublasLtMatmulDescSetAttribute", device_);
}

std::vector<Algorithm> Product::proposals(std::int64_t rows, bool split_k) {
  cublasLtMatmulPreference_t made = nullptr;
  check(functions().cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate",
        device_);
  const Preference preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(functions().cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value,
                                                           sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute", device_);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
  if (!split_k) {
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  }
  // Slices of tensors start at any row, so addresses are only aligned to rows.
  const auto of_rows = [&](std::int64_t extent) {
    std::uint32_t bytes = 16;
    while (extent * size_of(problem_.dtype) % bytes != 0) bytes /= 2;
    return bytes;
  };
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
         of_rows(problem_.pass == ops::Pass::forward ? problem_.in : problem_.out));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_rows(problem_.in));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_rows(problem_.out));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_rows(problem_.out));
  const MatrixLayout from = layout(problem_.dtype, problem_.in, rows, device_);
  const MatrixLayout into = layout(problem_.dtype, problem_.out, rows, device_);
  std::array<cublasLtMatmulHeuristicResult_t, max_proposals> results{};
  int found = 0;
  const cublasStatus_t status = functions().cublasLtMatmulAlgoGetHeuristic(
      library_, operation_.get(), weight_.get(), from.get(), into.get(), into.get(),
      preference.get(), max_proposals, results.data(), &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) {
    check(status, "cublasLtMatmulAlgoGetHeuristic", device_);
  }
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < std::clamp(found, 0, max_proposals); ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    if (split_k || without_split_k(result.algo)) algorithms.push_back(result.algo);
  }
  require(!algorithms.empty(), Status::unavailable,
          "cuBLASLt has no product of {} inputs and {} outputs in {} on {}", problem_.in,
          problem_.out, name_of(problem_.dtype), to_string(device_));
  return algorithms;
}

bool Product::takes(const Algorithm& algorithm, std::int64_t rows) const {
  const MatrixLayout from = layout(problem_.dtype, problem_.in, rows, device_);
  const MatrixLayout into = layout(problem_.dtype, problem_.out, rows, device_);
  cublasLtMatmulHeuristicResult_t result{};
  return functions().cublasLtMatmulAlgoCheck(library_, operation_.get(), weight_.get(), from.get(),
                                             into.get(), into.get(), &algorithm,
                                             &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<std::size_t>(workspace_bytes);
}

cublasStatus_t Product::enqueue(const Algorithm& algorithm, const Operands& operands,
                                std::int64_t rows) {
  if (problem_.epilogue.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  const MatrixLayout from = layout(problem_.dtype, problem_.in, rows, device_);
  const MatrixLayout into = layout(problem_.dtype, problem_.out, rows, device_);
  const float one = 1, zero = 0;
  return functions().cublasLtMatmul(
      library_, operation_.get(), &one, operands.weight, weight_.get(), operands.x, from.get(),
      &zero, operands.y, into.get(), operands.y, into.get(), &algorithm, workspace_,
      static_cast<std::size_t>(workspace_bytes), cuda::stream(device_));
}

void Product::run(const Algorithm& algorithm, const Operands& operands, std::int64_t rows) {
  check(enqueue(algorithm, operands, rows), "cublasLtMatmul", device_);
}

}  // namespace reelmesh::gpu::blas

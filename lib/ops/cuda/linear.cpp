#include "ops/cuda/linear.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "ops/cuda/ops.hpp"
#include "tensor/cuda/handles.hpp"
#include "tensor/cuda/libraries.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh::gpu {
namespace {

// The functions of cuBLASLt that are used.
struct Functions {
#define REELMESH_BLAS(f) REELMESH_LIBRARY_FUNCTION(cuda::cublas_lt(), f)
  REELMESH_BLAS(cublasLtCreate);
  REELMESH_BLAS(cublasLtDestroy);
  REELMESH_BLAS(cublasLtGetStatusString);
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

const Functions& blas() {
  static const Functions functions;
  return functions;
}

template <auto destroy>
struct Destroy {
  void operator()(auto made) const { (blas().*destroy)(made); }
};
using Library = Handle<cublasLtHandle_t, Destroy<&Functions::cublasLtDestroy>{}>;
using Operation = Handle<cublasLtMatmulDesc_t, Destroy<&Functions::cublasLtMatmulDescDestroy>{}>;
using MatrixLayout =
    Handle<cublasLtMatrixLayout_t, Destroy<&Functions::cublasLtMatrixLayoutDestroy>{}>;
using Preference =
    Handle<cublasLtMatmulPreference_t, Destroy<&Functions::cublasLtMatmulPreferenceDestroy>{}>;

// The number of rows for which reproducible algorithms are chosen. If an algorithm does not support
// the actual number, rows are computed in zero-padded pieces of this size.
constexpr std::int64_t nominal_rows = 4096;
constexpr std::int64_t workspace_bytes = 32 << 20;
constexpr int max_proposals = 8;  // algorithms requested from cuBLASLt

void check(cublasStatus_t status, const char* call, Device device) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const bool lacking = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                       status == CUBLAS_STATUS_ARCH_MISMATCH ||
                       status == CUBLAS_STATUS_ALLOC_FAILED;
  fail(lacking ? Status::unavailable : Status::internal, "{} on {} failed: {}", call,
       to_string(device), blas().cublasLtGetStatusString(status));
}

cudaDataType_t type_of(DType dtype) {
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
  check(blas().cublasLtMatrixLayoutCreate(&made, type_of(dtype), static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), rows),
        "cublasLtMatrixLayoutCreate", device);
  return MatrixLayout(made);
}

struct Epilogue {
  bool bias = false, gelu = false;
  auto operator<=>(const Epilogue&) const = default;
};

// The key by which algorithms are chosen and kept.
struct Case {
  DType dtype;
  bool tf32;
  bool split_k;  ///< sums along `in` may be split (split-K)
  std::int64_t in, out, rows;
  Epilogue epilogue;
  auto operator<=>(const Case&) const = default;
};

// y[rows, out] = x[rows, in]·W[out, in]ᵀ. cuBLAS is column-major: yᵀ [out, rows] = W·xᵀ.
class Product {
 public:
  Product(cublasLtHandle_t library, Device device, const Case& what, const void* workspace)
      : device_(device),
        dtype_(what.dtype),
        in_(what.in),
        out_(what.out),
        epilogue_(what.epilogue) {
    cublasLtMatmulDesc_t made = nullptr;
    // Sums in float32.
    const cublasComputeType_t compute =
        what.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(blas().cublasLtMatmulDescCreate(&made, compute, CUDA_R_32F), "cublasLtMatmulDescCreate",
          device);
    operation_ = Operation(made);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    const cublasLtEpilogue_t which =
        epilogue_.bias   ? (epilogue_.gelu ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
        : epilogue_.gelu ? CUBLASLT_EPILOGUE_GELU
                         : CUBLASLT_EPILOGUE_DEFAULT;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, which);
    // The heuristic reads the address of the bias: set an aligned one before choosing.
    if (epilogue_.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, workspace);
    weight_ = layout(dtype_, in_, out_, device);
    choose(library, what.rows, what.split_k);
  }

  void run(cublasLtHandle_t library, const void* x, const void* weight, const void* bias, void* y,
           std::int64_t rows, void* workspace) {
    if (epilogue_.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const MatrixLayout from = layout(dtype_, in_, rows, device_);
    const MatrixLayout into = layout(dtype_, out_, rows, device_);
    const float one = 1, zero = 0;
    check(
        blas().cublasLtMatmul(library, operation_.get(), &one, weight, weight_.get(), x, from.get(),
                              &zero, y, into.get(), y, into.get(), &algorithm_, workspace,
                              static_cast<std::size_t>(workspace_bytes), cuda::stream(device_)),
        "cublasLtMatmul", device_);
  }

  /// Whether the algorithm supports this number of rows.
  bool takes(cublasLtHandle_t library, std::int64_t rows) const {
    const MatrixLayout from = layout(dtype_, in_, rows, device_);
    const MatrixLayout into = layout(dtype_, out_, rows, device_);
    cublasLtMatmulHeuristicResult_t result{};
    return blas().cublasLtMatmulAlgoCheck(library, operation_.get(), weight_.get(), from.get(),
                                          into.get(), into.get(), &algorithm_,
                                          &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= static_cast<std::size_t>(workspace_bytes);
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(blas().cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute", device_);
  }

  // Chooses cuBLASLt's best proposal for this number of rows; without split_k the best one that
  // does not split the sums along `in`.
  void choose(cublasLtHandle_t library, std::int64_t rows, bool split_k) {
    cublasLtMatmulPreference_t made = nullptr;
    check(blas().cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate", device_);
    const Preference preference(made);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(blas().cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value,
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
      while (extent * size_of(dtype_) % bytes != 0) bytes /= 2;
      return bytes;
    };
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_rows(in_));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_rows(in_));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_rows(out_));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_rows(out_));
    const MatrixLayout from = layout(dtype_, in_, rows, device_);
    const MatrixLayout into = layout(dtype_, out_, rows, device_);
    std::array<cublasLtMatmulHeuristicResult_t, max_proposals> proposals{};
    int found = 0;
    const cublasStatus_t status = blas().cublasLtMatmulAlgoGetHeuristic(
        library, operation_.get(), weight_.get(), from.get(), into.get(), into.get(),
        preference.get(), max_proposals, proposals.data(), &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) {
      check(status, "cublasLtMatmulAlgoGetHeuristic", device_);
    }
    const auto end = proposals.begin() + std::clamp(found, 0, max_proposals);
    const auto best = std::find_if(proposals.begin(), end, [&](const auto& proposal) {
      return proposal.state == CUBLAS_STATUS_SUCCESS && (split_k || without_split_k(proposal.algo));
    });
    require(best != end, Status::unavailable,
            "cuBLASLt has no product of {} inputs and {} outputs in {} on {}", in_, out_,
            name_of(dtype_), to_string(device_));
    algorithm_ = best->algo;
  }

  // Whether the algorithm reports no split-K. The reduction scheme mask should already ensure it.
  static bool without_split_k(const cublasLtMatmulAlgo_t& algorithm) {
    std::int32_t pieces = 1;
    std::size_t written = 0;
    const cublasStatus_t status = blas().cublasLtMatmulAlgoConfigGetAttribute(
        &algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &pieces, sizeof(pieces), &written);
    return status != CUBLAS_STATUS_SUCCESS || pieces <= 1;
  }

  Device device_;
  DType dtype_;
  std::int64_t in_, out_;
  Epilogue epilogue_;
  Operation operation_;
  MatrixLayout weight_;
  cublasLtMatmulAlgo_t algorithm_{};
};

// All GEMMs of this process on one device.
class Products {
 public:
  explicit Products(Device device) : device_(device) {
    cuda::stream(device);  // the device becomes the thread's current one
    cublasLtHandle_t made = nullptr;
    check(blas().cublasLtCreate(&made), "cublasLtCreate", device);
    library_ = Library(made);
    const PurposeScope purpose(Purpose::workspace);
    workspace_ = Tensor::empty({workspace_bytes}, DType::uint8, device);
  }

  void run(const Tensor& x, const Tensor& weight, const Tensor& bias, Epilogue epilogue,
           const Numerics& numerics, Tensor& y) {
    const std::int64_t in = weight.shape(1), out = weight.shape(0), rows = x.numel() / in;
    const bool tf32 =
        numerics.tf32 && x.dtype() == DType::float32 && cuda::compute_capability(device_) >= 80;
    const bool reproducible = numerics.reproducible;
    const Case what{x.dtype(), tf32, !reproducible, in, out, reproducible ? nominal_rows : rows,
                    epilogue};
    auto& product = products_[what];
    void* workspace = workspace_.address_on(device_);
    if (product == nullptr) {
      product = std::make_unique<Product>(library_.get(), device_, what, workspace);
    }
    const void* b = bias.empty() ? nullptr : bias.address_on(device_);
    if (product->takes(library_.get(), rows)) {
      product->run(library_.get(), x.address_on(device_), weight.address_on(device_), b,
                   y.address_on(device_), rows, workspace);
      return;
    }
    const Tensor flat = x.reshape({rows, in});
    Tensor result = y.reshape({rows, out});
    Tensor from = Tensor::zeros({nominal_rows, in}, x.dtype(), device_);
    Tensor into = Tensor::empty({nominal_rows, out}, x.dtype(), device_);
    for (std::int64_t first = 0; first < rows; first += nominal_rows) {
      const std::int64_t count = std::min(nominal_rows, rows - first);
      from.rows(0, count).copy_from(flat.rows(first, count));
      product->run(library_.get(), from.address_on(device_), weight.address_on(device_), b,
                   into.address_on(device_), nominal_rows, workspace);
      result.rows(first, count).copy_from(into.rows(0, count));
    }
  }

 private:
  Device device_;
  Library library_;
  Tensor workspace_;
  std::map<Case, std::unique_ptr<Product>> products_;
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, ops::Activation activation,
              const Numerics& numerics) {
  const Device device = x.device();
  Shape shape = x.shape();
  shape.back() = weight.shape(0);
  Tensor out = Tensor::empty(std::move(shape), x.dtype(), device);
  if (out.empty()) return out;
  trace::recorder().flops += 2 * x.numel() * weight.shape(0);
  cuda::one_of<Products>(device).run(
      x, weight, bias, {!bias.empty(), activation == ops::Activation::gelu_tanh}, numerics, out);
  return activation == ops::Activation::silu ? silu(out) : out;
}

}  // namespace reelmesh::gpu

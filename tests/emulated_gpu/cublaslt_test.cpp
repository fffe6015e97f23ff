// Tests of the emulated cuBLASLt against the cuBLAS manual.
#include <cublasLt.h>

#include <cmath>
#include <cstring>

#include "emulated_gpu/device.hpp"
#include "ops/math.hpp"

namespace reelmesh::emulated {
namespace {

class EmulatedProduct : public EmulatedGpu {
 protected:
  using Numbers = std::vector<float>;

  void SetUp() override {
    EmulatedGpu::SetUp();
    cublasLtCreate(&library);
    workspace = memory(1 << 16);
    cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulPreferenceCreate(&preference);
    const std::uint64_t bytes = 1 << 16;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &bytes, sizeof(bytes));
    allow(CUBLASLT_REDUCTION_SCHEME_NONE);
  }
  void TearDown() override {
    for (cublasLtMatrixLayout_t layout : layouts) cublasLtMatrixLayoutDestroy(layout);
    for (std::byte* block : blocks) succeed(cudaFreeAsync(block, stream));
    succeed(cudaFreeAsync(workspace, stream));
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(library);
    EmulatedGpu::TearDown();
  }

  void allow(std::uint32_t schemes) {
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                         &schemes, sizeof(schemes));
  }
  template <class T>
  void set_attribute(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  cublasLtMatrixLayout_t layout(std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
    layouts.push_back(nullptr);
    cublasLtMatrixLayoutCreate(&layouts.back(), CUDA_R_32F, rows, columns, leading);
    return layouts.back();
  }
  std::byte* on_device(const Numbers& numbers) {
    const std::size_t bytes = numbers.size() * 4;
    std::byte *block = memory(bytes), *host = pinned(bytes);
    std::memcpy(host, numbers.data(), bytes);
    succeed(cudaMemcpyAsync(block, host, bytes, cudaMemcpyHostToDevice, stream));
    succeed(cudaFreeHost(host));
    blocks.push_back(block);
    return block;
  }
  Numbers on_host(const std::byte* block, std::size_t count) {
    Numbers numbers(count);
    std::byte* host = pinned(count * 4);
    succeed(cudaMemcpyAsync(host, block, count * 4, cudaMemcpyDeviceToHost, stream));
    succeed(cudaStreamSynchronize(stream));
    std::memcpy(numbers.data(), host, count * 4);
    succeed(cudaFreeHost(host));
    return numbers;
  }
  // d = alpha·op(a)·op(b) + beta·d, by the first algorithm that the heuristic proposes.
  cublasStatus_t multiply(cublasLtMatrixLayout_t a, const std::byte* of_a, cublasLtMatrixLayout_t b,
                          const std::byte* of_b, cublasLtMatrixLayout_t d, std::byte* of_d,
                          float alpha = 1, float beta = 0) {
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library, operation, a, b, d, d,
                                                                 preference, 1, &found, &count);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return cublasLtMatmul(library, operation, &alpha, of_a, a, of_b, b, &beta, of_d, d, of_d, d,
                          &found.algo, workspace, found.workspaceSize, stream);
  }

  cublasLtHandle_t library = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::byte* workspace = nullptr;
  std::vector<std::byte*> blocks;
  std::vector<cublasLtMatrixLayout_t> layouts;
};

// The heuristic proposes an algorithm whose state is not success, and split-K if it is allowed, so
// that callers which ignore either fail.
TEST_F(EmulatedProduct, ProposesWhatIsNotToBeTaken) {
  cublasLtMatrixLayout_t square = layout(4, 4, 4);
  const auto proposals = [&] {
    std::vector<std::int32_t> pieces;
    cublasLtMatmulHeuristicResult_t found[3] = {};
    int count = 0;
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(library, operation, square, square, square, square,
                                             preference, 3, found, &count),
              CUBLAS_STATUS_SUCCESS);
    for (int i = 0; i < count; ++i) {
      pieces.push_back(0);
      if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
      std::size_t written = 0;
      EXPECT_EQ(
          cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                               &pieces.back(), sizeof(std::int32_t), &written),
          CUBLAS_STATUS_SUCCESS);
      EXPECT_EQ(written, sizeof(std::int32_t));
    }
    return pieces;
  };
  EXPECT_EQ(proposals(), (std::vector<std::int32_t>{0, 1, 1}));
  allow(CUBLASLT_REDUCTION_SCHEME_MASK);
  EXPECT_EQ(proposals(), (std::vector<std::int32_t>{0, 2, 1}));
  std::byte* numbers = on_device(Numbers(16));
  EXPECT_EQ(multiply(square, numbers, square, numbers, square, numbers), CUBLAS_STATUS_SUCCESS);
}

TEST_F(EmulatedProduct, CountsByColumnsAndTransposes) {
  // op(A) [5, 7], op(B) [7, 6], D [5, 6]; 2 unused elements after each column.
  const int m = 5, n = 6, k = 7;
  Numbers x(100), y(100);
  for (std::size_t i = 0; i < 100; ++i) {
    x[i] = static_cast<float>(i % 11) - 5;
    y[i] = static_cast<float>(i % 7) - 3;
  }
  std::byte *a = on_device(x), *b = on_device(y);
  for (const auto of_a : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (const auto of_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      const bool at = of_a == CUBLAS_OP_T, bt = of_b == CUBLAS_OP_T;
      set_attribute(CUBLASLT_MATMUL_DESC_TRANSA, of_a);
      set_attribute(CUBLASLT_MATMUL_DESC_TRANSB, of_b);
      const int lda = (at ? k : m) + 2, ldb = (bt ? n : k) + 2, ldd = m + 2;
      std::byte* d = on_device(Numbers(100, 1));
      ASSERT_EQ(multiply(at ? layout(k, m, lda) : layout(m, k, lda), a,
                         bt ? layout(n, k, ldb) : layout(k, n, ldb), b, layout(m, n, ldd), d, 2, 3),
                CUBLAS_STATUS_SUCCESS);
      const Numbers found = on_host(d, 100);
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          float sum = 0;
          for (int s = 0; s < k; ++s) {
            sum += x[static_cast<std::size_t>(at ? s + i * lda : i + s * lda)] *
                   y[static_cast<std::size_t>(bt ? j + s * ldb : s + j * ldb)];
          }
          EXPECT_EQ(found[static_cast<std::size_t>(i + j * ldd)], 2 * sum + 3) << i << ", " << j;
        }
      }
      EXPECT_EQ(found[m], 1);  // unused elements between columns are not written
    }
  }
}

TEST_F(EmulatedProduct, EndsWithBiasAndGelu) {
  std::byte *a = on_device({2, 3}), *b = on_device({1, -1}), *d = on_device({0, 0, 0, 0});
  const void* bias = on_device({0.5F, -0.5F});
  set_attribute(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const Numbers products{2, 3, -2, -3};
  for (const auto epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                              CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS}) {
    set_attribute(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    ASSERT_EQ(multiply(layout(2, 1, 2), a, layout(1, 2, 1), b, layout(2, 2, 2), d),
              CUBLAS_STATUS_SUCCESS);
    const Numbers found = on_host(d, 4);
    for (std::size_t i = 0; i < 4; ++i) {
      float expected = products[i];
      if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS) {
        expected += i % 2 == 0 ? 0.5F : -0.5F;
      }
      if (epilogue == CUBLASLT_EPILOGUE_GELU || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS) {
        expected = ops::gelu_tanh(expected);
      }
      EXPECT_EQ(found[i], expected) << i << " of epilogue " << epilogue;
    }
  }
}

TEST_F(EmulatedProduct, RefusesWhatDoesNotFit) {
  std::byte *a = on_device(Numbers(64)), *b = on_device(Numbers(64)), *d = on_device(Numbers(64));
  const auto square = layout(8, 8, 8);
  EXPECT_EQ(multiply(square, a, square, b, square, d), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(square, a, layout(7, 8, 8), b, square, d), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(square, a, square, b, layout(8, 7, 8), d), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(square, a, square, b, layout(8, 8, 7), d), CUBLAS_STATUS_INVALID_VALUE);
  // Beyond the block; not aligned as the preference says; host memory.
  EXPECT_EQ(multiply(square, a, square, b, layout(8, 8, 9), d), CUBLAS_STATUS_INVALID_VALUE);
  const auto small = layout(2, 2, 2);
  EXPECT_EQ(multiply(small, a + 4, small, b, small, d), CUBLAS_STATUS_INVALID_VALUE);
  Numbers host(64);
  EXPECT_EQ(multiply(square, reinterpret_cast<std::byte*>(host.data()), square, b, square, d),
            CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatmulDesc_t other_sums = nullptr;
  EXPECT_EQ(cublasLtMatmulDescCreate(&other_sums, CUBLAS_COMPUTE_32F, CUDA_R_16F),
            CUBLAS_STATUS_NOT_SUPPORTED);
}

}  // namespace
}  // namespace reelmesh::emulated

#include "tensor/cuda/libraries.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tensor/device.hpp"

namespace reelmesh {
namespace {

// Needs no GPU: loads the libraries and asks for their versions.
TEST(CudaLibraries, AreOfTheVersionThatIsAskedFor) {
  if (!cuda_built) GTEST_SKIP() << "this build has no CUDA backend";
  if constexpr (cuda_built) {
    const auto major_version = [](auto&& library, const char* symbol) -> std::size_t {
      try {
        return library().template function<std::size_t()>(symbol)() / 10000;
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::unavailable);
        EXPECT_NE(std::string(error.what()).find("cannot be loaded"), std::string::npos);
        return 0;
      }
    };
    const std::size_t blas = major_version(cuda::cublas_lt, "cublasLtGetVersion");
    const std::size_t dnn = major_version(cuda::cudnn, "cudnnGetVersion");
    if (blas == 0 || dnn == 0) GTEST_SKIP() << "cuBLASLt or cuDNN is not installed";
    EXPECT_GE(blas, 12);
    EXPECT_GE(dnn, 9);
    int nccl = 0;
    cuda::nccl().function<int(int*)>("ncclGetVersion")(&nccl);
    EXPECT_GE(nccl / 10000, 2);
  }
}

}  // namespace
}  // namespace reelmesh

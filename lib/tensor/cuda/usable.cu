// Whether a GPU and its driver can run the kernels of this build.
#include "tensor/cuda/kernel.cuh"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::gpu {
namespace {

// Versions and capabilities of the compilation, as CUDA numbers them. All kernels are compiled for
// the same ones.
#ifdef __CUDACC__
constexpr int compiler = CUDART_VERSION;
constexpr int capabilities[] = {__CUDA_ARCH_LIST__};
#else
constexpr int compiler = emulated::toolkit;
constexpr int capabilities[] = {900};
#endif

__global__ void count_kernel(std::int64_t* result) { atomic_add(result, 1); }

}  // namespace
}  // namespace reelmesh::gpu

namespace reelmesh::cuda {

std::string compiled_for() {
  std::string text;
  for (const int capability : gpu::capabilities) {
    text +=
        fmt::format("{}{}.{}", text.empty() ? "" : ", ", capability / 100, capability % 100 / 10);
  }
  return fmt::format("compute capability {} by CUDA {}, and for later ones as PTX", text,
                     version_of_cuda(gpu::compiler));
}

// A trivial one tells for all: they are compiled alike.
void require_kernels(Device device) {
  Tensor result = Tensor::zeros({sizeof(std::int64_t)}, DType::uint8, device);
  gpu::launch({.name = "the first kernel", .device = device, .blocks = 1, .threads = 1},
              gpu::count_kernel, static_cast<std::int64_t*>(result.address_on(device)));
  std::int64_t count = 0;
  const Tensor host = result.on({});
  std::memcpy(&count, host.raw(), sizeof count);
  require(count == 1, Status::unavailable, "a kernel that counts to 1 on {} gave {}",
          to_string(device), count);
}

}  // namespace reelmesh::cuda

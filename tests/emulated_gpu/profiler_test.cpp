// Ranges of a profiler (NVTX) on the emulated GPU.
#include <nvtx3/nvToolsExt.h>

#include "base/trace.hpp"
#include "emulated_gpu/device.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::emulated {
namespace {

TEST(ProfilerRanges, AreOpenWhileScopesAre) {
  const Tensor on_device = Tensor::zeros({1}, DType::float32, Device{0});  // makes its context
  open_ranges.clear();
  {
    const trace::Scope step(trace::spans::denoise_step);
    {
      const trace::Scope product(trace::spans::product);  // at a level that is not traced
      EXPECT_EQ(open_ranges, (std::vector<std::string>{"denoise_step", "product"}));
    }
    EXPECT_EQ(open_ranges, std::vector<std::string>{"denoise_step"});
  }
  EXPECT_TRUE(open_ranges.empty());
}

}  // namespace
}  // namespace reelmesh::emulated

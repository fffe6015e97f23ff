// Memory of the GPU beside that of tensors: what libraries, kernels and graphs take. A plan counts
// on program_bytes_on_gpu for it, with the driver's context.
#include "ops/attention.hpp"
#include "ops/convolution.hpp"
#include "ops/linear.hpp"
#include "ops/pointwise.hpp"
#include "plan/machine.hpp"
#include "support/test_device.hpp"
#include "tensor/cuda/graph.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::test {
namespace {

class MemoryOnGpu : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, MemoryOnGpu, testing::Values(DType::bfloat16), type_name);

// tests/gpu/run picks these lines.
TEST_P(MemoryOnGpu, LibrariesAndGraphsTakeNoMoreThanPlanned) {
  const auto random = [](const Shape& shape) {
    return repeated_random_tensor(shape, 1, GetParam(), 0.1F, test_device());
  };
  const std::int64_t unused = unused_device_memory(test_device());
  const std::int64_t present = device_memory(test_device()).present;
  std::int64_t beside_tensors = 0;
  const auto print = [&](const char* after) {
    cuda::synchronize(test_device());
    const std::int64_t taken = unused - unused_device_memory(test_device());
    const std::int64_t tensors = device_memory(test_device()).present - present;
    beside_tensors = taken - tensors;
    fmt::print("memory: after {}: {} MiB more in use, {} MiB of them for tensors\n", after,
               taken >> 20, tensors >> 20);
  };
  const std::int64_t n = size(64, 4096), keys = size(512, 17776), heads = size(1, 48);
  ops::Linear(random({n, n}))(random({n, n}));
  print("a product");
  const std::int64_t channels = size(16, 512), rows = size(16, 60), columns = size(32, 90);
  const ops::RowWindow all{0, rows, rows};
  ops::Convolution(random({channels, channels, 3, 3, 3}), random({channels}))(
      random({2, rows, columns, channels}), all, all);
  print("a convolution");
  ops::attend(random({keys, 2, heads, 64}), random({keys, 2, 2, heads, 64}), 0.125F);
  print("attention");
  {
    const Tensor x = random({size(1 << 10, 1 << 27)});
    Tensor y = Tensor::empty(x.shape(), GetParam(), test_device());
    const cuda::Graph graph(test_device(), [&] { y.copy_from(ops::silu(ops::silu(x))); });
    graph.replay();
    print("a graph, which holds two tensors");
  }
  print("its end");
  EXPECT_LE(beside_tensors, program_bytes_on_gpu);
}

}  // namespace
}  // namespace reelmesh::test

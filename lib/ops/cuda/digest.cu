#include "ops/cuda/digest.hpp"

#include "ops/counter_random.hpp"
#include "tensor/cuda/kernel.cuh"

namespace reelmesh::gpu {
namespace {

// ops::mix() is a bijection that changes about half of the bits if one bit of the argument changes.
// Sums are integers, so their order does not matter. result: {sum, number of nonzero elements}.
template <class Bits>
__global__ void digest_kernel(const Bits* x, std::int64_t n, std::int64_t* result) {
  std::uint64_t sum = 0;
  std::int64_t nonzero = 0;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const Bits bits = x[i];
    sum += ops::mix((static_cast<std::uint64_t>(i) << 32) ^ bits);
    nonzero += static_cast<Bits>(bits << 1) != 0 ? 1 : 0;  // without the sign
  }
  atomic_add(result, static_cast<std::int64_t>(sum));
  atomic_add(result + 1, nonzero);
}

template <class Bits>
void launch_digest(const Tensor& x, Tensor& result) {
  constexpr int threads = 256;
  constexpr std::int64_t max_blocks = 512;
  const Device device = x.device();
  launch({.name = "digest",
          .device = device,
          .blocks = std::min(max_blocks, blocks_for(x.numel(), threads)),
          .threads = threads},
         digest_kernel<Bits>, static_cast<const Bits*>(x.address_on(device)), x.numel(),
         static_cast<std::int64_t*>(result.address_on(device)));
}

}  // namespace

Digest digest(const Tensor& x) {
  Tensor result = Tensor::zeros({2 * sizeof(std::int64_t)}, DType::uint8, x.device());
  if (size_of(x.dtype()) == 2) {
    launch_digest<std::uint16_t>(x, result);
  } else {
    launch_digest<std::uint32_t>(x, result);
  }
  const Tensor host = result.on({});
  Digest made;
  std::memcpy(&made.sum, host.raw(), sizeof(made.sum));
  std::memcpy(&made.nonzero, static_cast<const std::byte*>(host.raw()) + sizeof(made.sum),
              sizeof(made.nonzero));
  return made;
}

}  // namespace reelmesh::gpu

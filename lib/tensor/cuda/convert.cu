#include "tensor/cuda/kernel.cuh"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh {
namespace gpu {
namespace {

template <class From, class Into, int W>
__global__ void convert_numbers(const From* from, Into* into, std::int64_t packs) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= packs) return;
  float values[W];
  load<W>(from + i * W, values);
  store<W>(values, into + i * W);
}

template <class From, class Into>
void convert_all(Device device, const void* from, void* into, std::int64_t count) {
  const auto* source = static_cast<const From*>(from);
  auto* target = static_cast<Into*>(into);
  constexpr int wide = 8;
  if (count % wide == 0 && aligned(from) && aligned(into)) {
    launch({"convert", device, blocks_for(count / wide, 256)}, convert_numbers<From, Into, wide>,
           source, target, count / wide);
  } else {
    launch({"convert", device, blocks_for(count, 256)}, convert_numbers<From, Into, 1>, source,
           target, count);
  }
}

}  // namespace
}  // namespace gpu

void cuda::convert(Device device, const void* from, DType from_type, void* into, DType into_type,
                   std::int64_t count) {
  visit_float(from_type, [&](auto a) {
    visit_float(into_type, [&](auto b) {
      gpu::convert_all<decltype(a), decltype(b)>(device, from, into, count);
    });
  });
}

}  // namespace reelmesh

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

constexpr int numbers_of_8_bits = 256;

// One thread for W columns of a row.
template <class T, int W>
__global__ void expand_rows(const std::uint8_t* bytes, const float* values, const float* factors,
                            T* into, std::int64_t packs, std::int64_t packs_of_row) {
  float* const table = shared_memory<float>();
  table[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= packs) return;
  const float factor = factors[i / packs_of_row];
  std::uint8_t numbers[W];
  if constexpr (W == 1) {
    numbers[0] = bytes[i];
  } else {
    static_assert(W == sizeof(uint4));
    const uint4 raw = reinterpret_cast<const uint4*>(bytes)[i];
    memcpy(numbers, &raw, sizeof(numbers));
  }
  float wide[W];
  for (int k = 0; k < W; ++k) wide[k] = table[numbers[k]] * factor;
  store<W>(wide, into + i * W);
}

template <class T>
void expand_all(Device device, const Tensor& bytes, const Tensor& values, const Tensor& factors,
                Tensor& into) {
  const auto* from = static_cast<const std::uint8_t*>(bytes.address_on(device));
  T* const to = address<T>(into, device);
  const std::int64_t columns = bytes.shape(1);
  const auto run = [&]<int W>(std::integral_constant<int, W>) {
    const std::int64_t packs = bytes.numel() / W;
    launch({"expand_float8", device, blocks_for(packs, numbers_of_8_bits), numbers_of_8_bits,
            numbers_of_8_bits * std::int64_t{sizeof(float)}},
           expand_rows<T, W>, from, address<float>(values, device), address<float>(factors, device),
           to, packs, columns / W);
  };
  constexpr int wide = sizeof(uint4);
  if (columns % wide == 0 && aligned(from) && aligned(to)) {
    run(std::integral_constant<int, wide>());
  } else {
    run(std::integral_constant<int, 1>());
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

void cuda::expand_float8(Device device, const Tensor& bytes, const Tensor& values,
                         const Tensor& factors, Tensor& into) {
  visit_float(into.dtype(), [&](auto type) {
    gpu::expand_all<decltype(type)>(device, bytes, values, factors, into);
  });
}

}  // namespace reelmesh

#include "ops/cuda/folding.hpp"
#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

template <class T>
struct AddFolded {
  T* small;
  const T* large;
  ops::FoldOrder order;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, static_cast<std::uint32_t>(order.small_channels));
    float v[W];
    load<W>(small + at, v);
#pragma unroll  // so that v stays in registers
    for (int i = 0; i < W; ++i) {
      const std::int64_t channel = element.column + i;
      float sum = 0;
      for (std::int64_t k = channel * order.neighbours; k < (channel + 1) * order.neighbours; ++k) {
        const std::int64_t from = order.large(element.row, k);
        if (from >= 0) sum += widen(large[from]);
      }
      v[i] += sum / static_cast<float>(order.neighbours);
    }
    store<W>(v, small + at);
  }
};

template <class T>
struct AddUnfolded {
  T* large;
  const T* small;
  ops::FoldOrder order;
  template <int W>
  __device__ void run(std::int64_t at) const {
    const RowColumn element(at, static_cast<std::uint32_t>(order.channels));
    float v[W];
    load<W>(large + at, v);
    for (int i = 0; i < W; ++i) v[i] += widen(small[order.small(element.row, element.column + i)]);
    store<W>(v, large + at);
  }
};

}  // namespace

void add_folded(Tensor& small, const Tensor& large, const ops::Folding& folding) {
  const ops::FoldOrder order = ops::FoldOrder::of(small.shape(), large.shape(), folding);
  visit_float(small.dtype(), [&](auto type) {
    using T = decltype(type);
    T* into = address<T>(small, small.device());
    for_packs<T>("add_folded", small.device(), small.numel(), order.small_channels, {into},
                 AddFolded<T>{into, address<T>(large, small.device()), order});
  });
}

void add_unfolded(Tensor& large, const Tensor& small, const ops::Folding& folding) {
  const ops::FoldOrder order = ops::FoldOrder::of(small.shape(), large.shape(), folding);
  visit_float(large.dtype(), [&](auto type) {
    using T = decltype(type);
    T* into = address<T>(large, large.device());
    for_packs<T>("add_unfolded", large.device(), large.numel(), order.channels, {into},
                 AddUnfolded<T>{into, address<T>(small, large.device()), order});
  });
}

}  // namespace reelmesh::gpu

#include "ops/folding.hpp"

#include "ops/cuda/folding.hpp"
#include "ops/parallel.hpp"
#include "tensor/dispatch.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::ops {
namespace {

void check_folding(const Tensor& small, const Tensor& large, const Folding& f) {
  const Shape &s = small.shape(), &l = large.shape();
  expect(s[0] * f.frames == l[0] + f.missing && s[1] * f.side == l[1] && s[2] * f.side == l[2] &&
             l[3] * f.frames * f.side * f.side % s[3] == 0 && small.dtype() == large.dtype(),
         "{} folded to {}", l, s);
}

namespace cpu {

void add_folded(Tensor& small, const Tensor& large, const Folding& folding) {
  const FoldOrder order = FoldOrder::of(small.shape(), large.shape(), folding);
  const std::int64_t channels = order.small_channels;
  visit_float(small.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(small.numel() / channels, 64, [&](std::int64_t pixel) {
      T* into = small.data<T>() + pixel * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (std::int64_t i = c * order.neighbours; i < (c + 1) * order.neighbours; ++i) {
          const std::int64_t from = order.large(pixel, i);
          if (from >= 0) sum += static_cast<float>(large.data<T>()[from]);
        }
        into[c] = T(static_cast<float>(into[c]) + sum / static_cast<float>(order.neighbours));
      }
    });
  });
}

void add_unfolded(Tensor& large, const Tensor& small, const Folding& folding) {
  const FoldOrder order = FoldOrder::of(small.shape(), large.shape(), folding);
  const std::int64_t channels = order.channels;
  visit_float(large.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(large.numel() / channels, 64, [&](std::int64_t pixel) {
      T* into = large.data<T>() + pixel * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        into[c] = T(static_cast<float>(into[c]) +
                    static_cast<float>(small.data<T>()[order.small(pixel, c)]));
      }
    });
  });
}

}  // namespace cpu
}  // namespace

void add_folded(Tensor& small, const Tensor& large, const Folding& folding) {
  check_folding(small, large, folding);
  if (small.empty()) return;
  note_moved(2 * small.bytes() + large.bytes());
  dispatch(
      small.device(), [&] { gpu::add_folded(small, large, folding); },
      [&] { cpu::add_folded(small, large, folding); });
}

void add_unfolded(Tensor& large, const Tensor& small, const Folding& folding) {
  check_folding(small, large, folding);
  if (large.empty()) return;
  note_moved(small.bytes() + 2 * large.bytes());
  dispatch(
      large.device(), [&] { gpu::add_unfolded(large, small, folding); },
      [&] { cpu::add_unfolded(large, small, folding); });
}

}  // namespace reelmesh::ops

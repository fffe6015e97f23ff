#include "tensor/strided_copy.hpp"

#include <array>
#include <cstring>
#include <functional>
#include <numeric>

#include "tensor/dispatch.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh {
namespace {

// Calls f(source offset, target offset, elements) for every contiguous run of a copy.
template <class F>
void for_each_run(const gpu::StridedCopy& copy, F&& f) {
  // Trailing axes that are contiguous in both arrays form one run.
  int axes = copy.axes;
  std::int64_t run = 1;
  while (axes > 0 && copy.source[axes - 1] == run && copy.target[axes - 1] == run) {
    run *= copy.extent[--axes];
  }
  std::array<std::int64_t, gpu::StridedCopy::max_axes> index{};
  std::int64_t source = copy.source_offset, target = copy.target_offset;
  while (true) {
    f(source, target, run);
    int axis = axes - 1;
    for (; axis >= 0; --axis) {
      const auto at = static_cast<std::size_t>(axis);
      source += copy.source[at];
      target += copy.target[at];
      if (++index[at] < copy.extent[at]) break;
      source -= index[at] * copy.source[at];
      target -= index[at] * copy.target[at];
      index[at] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace

void copy_elements(const gpu::StridedCopy& copy, const Tensor& source, Tensor& target) {
  const std::int64_t size = size_of(source.dtype());
  if (target.device().only_shapes) {
    return note_moved(2 * size *
                      std::accumulate(copy.extent, copy.extent + copy.axes, std::int64_t{1},
                                      std::multiplies<>()));
  }
  const auto on_cpu = [&] {
    const auto* read = static_cast<const std::byte*>(source.raw());
    auto* write = static_cast<std::byte*>(target.raw());
    for_each_run(copy, [&](std::int64_t s, std::int64_t t, std::int64_t run) {
      std::memcpy(write + t * size, read + s * size, static_cast<std::size_t>(run * size));
    });
  };
  dispatch(
      target.device(), [&] { gpu::copy_strided(copy, source, target); }, on_cpu);
}

}  // namespace reelmesh

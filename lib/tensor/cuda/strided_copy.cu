#include "tensor/cuda/strided_copy.hpp"

#include <numeric>

#include "tensor/cuda/packs.cuh"

namespace reelmesh::gpu {
namespace {

template <class T>
struct Copy {
  StridedCopy box;
  const T* source;
  T* target;
  template <int W>
  __device__ void run(std::int64_t at) const {
    // 32-bit division is several times as fast, and enough for most boxes.
    if (at <= 0xffffffffLL) {
      copy_from<W>(static_cast<std::uint32_t>(at));
    } else {
      copy_from<W>(at);
    }
  }
  template <int W, class Index>
  __device__ void copy_from(Index at) const {
    std::int64_t from = 0, into = 0;
    for (int axis = box.axes - 1; axis > 0; --axis) {
      // If the extent exceeds `at`, the quotient is 0, and the extent may not fit into Index.
      const bool beyond = box.extent[axis] > static_cast<std::int64_t>(at);
      const Index outer = beyond ? 0 : at / static_cast<Index>(box.extent[axis]);
      const std::int64_t i = at - outer * static_cast<Index>(box.extent[axis]);
      from += i * box.source[axis];
      into += i * box.target[axis];
      at = outer;
    }
    copy<W>(source + from + at * box.source[0], target + into + at * box.target[0]);
  }
};

// Merges axes that are contiguous in both arrays.
void merge(StridedCopy& box) {
  int last = 0;
  for (int axis = 1; axis < box.axes; ++axis) {
    const bool dense = box.source[last] == box.source[axis] * box.extent[axis] &&
                       box.target[last] == box.target[axis] * box.extent[axis];
    if (!dense) ++last;
    box.extent[last] = dense ? box.extent[last] * box.extent[axis] : box.extent[axis];
    box.source[last] = box.source[axis];
    box.target[last] = box.target[axis];
  }
  box.axes = last + 1;
}

template <class T>
void run_copy(const StridedCopy& box, const Tensor& source, Tensor& target) {
  const Device device = target.device();
  const T* from = static_cast<const T*>(source.address_on(device)) + box.source_offset;
  T* into = static_cast<T*>(target.address_on(device)) + box.target_offset;
  // Packs can be used if all contiguous runs begin and end at whole packs.
  std::int64_t count = 1, common = 0;
  for (int axis = 0; axis < box.axes; ++axis) {
    count *= box.extent[axis];
    if (axis + 1 < box.axes) {
      common = std::gcd(std::gcd(common, box.source[axis]), box.target[axis]);
    }
  }
  const int last = box.axes - 1;
  common = std::gcd(common, box.extent[last]);
  if (box.source[last] != 1 || box.target[last] != 1) common = 1;
  for_packs<T>("copy_strided", device, count, common, {from, into}, Copy<T>{box, from, into});
}

}  // namespace

void copy_strided(StridedCopy box, const Tensor& source, Tensor& target) {
  expect(box.axes > 0 && box.axes <= StridedCopy::max_axes && source.dtype() == target.dtype(),
         "copy of {} axes of {} to {}", box.axes, name_of(source.dtype()), name_of(target.dtype()));
  merge(box);
  switch (size_of(source.dtype())) {
    case 4:
      return run_copy<std::uint32_t>(box, source, target);
    case 2:
      return run_copy<std::uint16_t>(box, source, target);
    default:
      return run_copy<std::uint8_t>(box, source, target);
  }
}

}  // namespace reelmesh::gpu

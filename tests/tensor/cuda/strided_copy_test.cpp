#include "tensor/cuda/strided_copy.hpp"

#include <cstring>

#include "layout/relayout.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

class StridedCopyTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Types, StridedCopyTest,
                         testing::Values(DType::float32, DType::bfloat16, DType::uint8), type_name);

// A dense tensor filled with a fixed pattern of bytes.
Tensor numbered(const Shape& shape, DType dtype) {
  Tensor t = Tensor::empty(shape, dtype);
  auto* bytes = static_cast<std::uint8_t*>(t.raw());
  for (std::int64_t i = 0; i < t.bytes(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
  }
  return t;
}

// Boxes of layouts: the same result as copy_box on the host.
TEST_P(StridedCopyTest, CopiesBoxes) {
  const Box from{{1, 0, 2, 0}, {3, 4, 6, 16}};
  for (const Box& to : {Box{{0, 0, 0, 0}, {5, 5, 9, 16}}, Box{{2, 1, 3, 3}, {2, 3, 4, 9}},
                        Box{{1, 0, 2, 0}, {3, 4, 6, 16}}, Box{{0, 0, 0, 8}, {4, 4, 8, 8}}}) {
    const Box box = intersect(from, to);
    const Tensor source = numbered(from.extent, GetParam());
    Tensor target = Tensor::zeros(to.extent, GetParam());
    Tensor copied = Tensor::zeros(to.extent, GetParam(), test_device());
    copy_box(box, source, from, target, to);
    gpu::copy_strided(strided_copy(box, from, to), there(source), copied);
    EXPECT_TRUE(same_bits(back(copied), target)) << to_string(to.extent);
  }
}

// Columns of rows, one column after another: the axes have another order in the target.
TEST_P(StridedCopyTest, CopiesColumns) {
  constexpr std::int64_t rows = 7, columns = 3, width = 8, all = 30, first = 4;
  const Tensor source = numbered({rows, all}, GetParam());
  const gpu::StridedCopy copy{.axes = 3,
                              .extent = {columns, rows, width},
                              .source = {width, all, 1},
                              .target = {rows * width, width, 1},
                              .source_offset = first};
  Tensor expected = Tensor::empty({columns, rows, width}, GetParam());
  const std::int64_t size = size_of(GetParam());
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    const std::int64_t column = i / (rows * width), row = i / width % rows, at = i % width;
    const std::int64_t from = row * all + first + column * width + at;
    std::memcpy(static_cast<std::byte*>(expected.raw()) + i * size,
                static_cast<const std::byte*>(source.raw()) + from * size,
                static_cast<std::size_t>(size));
  }
  Tensor on_host = Tensor::zeros(expected.shape(), GetParam());
  copy_elements(copy, source, on_host);
  EXPECT_TRUE(same_bits(on_host, expected));
  Tensor copied = Tensor::zeros(expected.shape(), GetParam(), test_device());
  copy_elements(copy, there(source), copied);
  EXPECT_TRUE(same_bits(back(copied), expected));
}

}  // namespace
}  // namespace reelmesh::test

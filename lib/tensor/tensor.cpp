#include "tensor/tensor.hpp"

#include <fmt/ranges.h>

#include <cstring>

#include "base/units.hpp"
#include "tensor/convert.hpp"
#include "tensor/memory.hpp"

namespace reelmesh {

std::int64_t numel(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n = checked_product(n, extent, "tensor shape");
  return n;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Tensor Tensor::empty(Shape shape, DType dtype) {
  Tensor t;
  t.numel_ = reelmesh::numel(shape);
  t.shape_ = std::move(shape);
  t.dtype_ = dtype;
  const std::int64_t bytes = checked_product(t.numel_, size_of(dtype), "tensor shape");
  if (bytes == 0) return t;
  std::shared_ptr<void> memory = host_memory(bytes);
  require(memory != nullptr, Status::unavailable, "no memory left for a tensor of {} ({} {})",
          format_bytes(static_cast<double>(bytes)), name_of(dtype), to_string(t.shape_));
  t.data_ = memory.get();
  t.owner_ = std::move(memory);
  return t;
}

Tensor Tensor::zeros(Shape shape, DType dtype) {
  Tensor t = empty(std::move(shape), dtype);
  if (!t.empty()) std::memset(t.data_, 0, static_cast<std::size_t>(t.bytes()));
  return t;
}

Tensor Tensor::wrap(void* data, Shape shape, DType dtype, std::shared_ptr<const void> owner) {
  Tensor t;
  t.numel_ = reelmesh::numel(shape);
  t.shape_ = std::move(shape);
  t.dtype_ = dtype;
  t.owner_ = std::move(owner);
  t.data_ = data;
  return t;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t count) const {
  expect(!shape_.empty() && begin >= 0 && count >= 0 && begin + count <= shape_[0],
         "rows {}..{} of a tensor {}", begin, begin + count, to_string(shape_));
  Tensor t = *this;
  const std::int64_t stride = shape_[0] == 0 ? 0 : numel_ / shape_[0];
  t.shape_[0] = count;
  t.numel_ = count * stride;
  t.data_ = static_cast<std::byte*>(data_) + begin * stride * size_of(dtype_);
  return t;
}

Tensor Tensor::reshape(Shape shape) const {
  expect(reelmesh::numel(shape) == numel_, "tensor {} reshaped to {}", to_string(shape_),
         to_string(shape));
  Tensor t = *this;
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor out = empty(shape_, dtype);
  convert(data_, dtype_, out.data_, dtype, numel_);
  return out;
}

Tensor Tensor::clone() const {
  Tensor out = empty(shape_, dtype_);
  if (numel_ > 0) std::memcpy(out.data_, data_, static_cast<std::size_t>(bytes()));
  return out;
}

}  // namespace reelmesh

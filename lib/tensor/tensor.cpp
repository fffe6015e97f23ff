#include "tensor/tensor.hpp"

#include <fmt/ranges.h>

#include <cstring>

#include "base/units.hpp"
#include "tensor/convert.hpp"
#include "tensor/cuda/runtime.hpp"
#include "tensor/dispatch.hpp"
#include "tensor/ledger.hpp"
#include "tensor/memory.hpp"

namespace reelmesh {

std::int64_t numel(const Shape& shape) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n = checked_product(n, extent, "tensor shape");
  return n;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Tensor Tensor::empty(Shape shape, DType dtype, Device device) {
  Tensor t;
  t.device_ = device;
  t.numel_ = reelmesh::numel(shape);
  t.shape_ = std::move(shape);
  t.dtype_ = dtype;
  const std::int64_t bytes = checked_product(t.numel_, size_of(dtype), "tensor shape");
  if (bytes == 0) return t;
  if (device.only_shapes) {
    t.owner_ = Ledger::current().allocate(device, bytes);
    return t;
  }
  if constexpr (cuda_built) {
    if (device.is_cuda()) {
      t.owner_ = cuda::allocate(device, bytes, &t.data_);
      return t;
    }
  }
  expect(!device.is_cuda(), "tensor on {} in a build without CUDA", to_string(device));
  std::shared_ptr<void> memory = host_memory(bytes);
  require(memory != nullptr, Status::unavailable, "no memory left for a tensor of {} ({} {})",
          format_bytes(static_cast<double>(bytes)), name_of(dtype), to_string(t.shape_));
  t.data_ = memory.get();
  t.owner_ = std::move(memory);
  return t;
}

Tensor Tensor::zeros(Shape shape, DType dtype, Device device) {
  Tensor t = empty(std::move(shape), dtype, device);
  if (t.empty()) return t;
  dispatch(
      device, [&] { cuda::fill_zero(device, t.data_, t.bytes()); },
      [&] { std::memset(t.data_, 0, static_cast<std::size_t>(t.bytes())); });
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
         "rows {}..{} of a tensor {}", begin, begin + count, shape_);
  Tensor t = *this;
  const std::int64_t stride = shape_[0] == 0 ? 0 : numel_ / shape_[0];
  t.shape_[0] = count;
  t.numel_ = count * stride;
  t.number_ = 0;
  if (data_ == nullptr) return t;
  t.data_ = static_cast<std::byte*>(data_) + begin * stride * size_of(dtype_);
  return t;
}

Tensor Tensor::reshape(Shape shape) const {
  expect(reelmesh::numel(shape) == numel_, "tensor {} reshaped to {}", shape_, shape);
  Tensor t = *this;
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::view_bytes(std::int64_t begin, Shape shape, DType dtype) const {
  const std::int64_t elements = reelmesh::numel(shape), size = size_of(dtype);
  expect(begin >= 0 && begin % size == 0 && begin + elements * size <= bytes(),
         "{} of {} from byte {} on of a tensor of {} bytes", shape, name_of(dtype), begin, bytes());
  Tensor t = *this;
  t.shape_ = std::move(shape);
  t.numel_ = elements;
  t.dtype_ = dtype;
  t.number_ = 0;
  if (data_ == nullptr) return t;
  t.data_ = static_cast<std::byte*>(data_) + begin;
  return t;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor out = empty(shape_, dtype, device_);
  if (numel_ == 0) return out;
  dispatch(
      device_, [&] { cuda::convert(device_, data_, dtype_, out.data_, dtype, numel_); },
      [&] { convert(data_, dtype_, out.data_, dtype, numel_); });
  return out;
}

void Tensor::misread(DType dtype) const {
  fail(Status::internal, "tensor of {} read as {}", name_of(dtype_), name_of(dtype));
}

void Tensor::misplaced(Device device) const {
  fail(Status::internal, "tensor {} on {} used on {}", to_string(shape_),
       reelmesh::to_string(device_), reelmesh::to_string(device));
}

Tensor Tensor::on(Device device) const {
  if (device == device_) return *this;
  Tensor out = empty(shape_, dtype_, device);
  out.copy_from(*this);
  return out;
}

Tensor Tensor::clone() const {
  Tensor out = empty(shape_, dtype_, device_);
  out.copy_from(*this);
  out.number_ = number_;
  return out;
}

void Tensor::copy_from(const Tensor& other) {
  expect(shape_ == other.shape_ && dtype_ == other.dtype_, "tensor {} of {} copied to {} of {}",
         reelmesh::to_string(other.shape_), name_of(other.dtype_), shape_, name_of(dtype_));
  if (numel_ == 0) return;
  if (device_.only_shapes) return note_moved(2 * bytes());
  if (other.device_.only_shapes) other.misplaced(device_);
  if constexpr (cuda_built) {
    const Device from = other.device_;
    if (from.is_cuda() && device_.is_cuda()) {
      if (from != device_) other.misplaced(device_);
      return cuda::on_device(device_, data_, other.data_, bytes());
    }
    if (device_.is_cuda()) return cuda::to_device(device_, data_, other.data_, bytes());
    if (from.is_cuda()) return cuda::to_host(from, data_, other.data_, bytes());
  }
  std::memcpy(data_, other.data_, static_cast<std::size_t>(bytes()));
}

}  // namespace reelmesh

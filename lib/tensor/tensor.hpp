#pragma once
// A dense row-major array in host or device memory. Copies and views of a Tensor share its memory.
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"

namespace reelmesh {

struct TapeValue;

/// Extents, outermost first. All are ≥ 0.
using Shape = std::vector<std::int64_t>;

std::int64_t numel(const Shape& shape);
std::string to_string(const Shape& shape);  ///< "[2, 3, 4]"

class Tensor {
 public:
  Tensor() = default;  ///< no elements, shape [0]

  /// Uninitialised, aligned to 64 bytes. Throws Error(unavailable) if there is not enough memory.
  /// With shapes only it is counted by the current Ledger, which there must be.
  static Tensor empty(Shape shape, DType dtype, Device device = {});
  static Tensor zeros(Shape shape, DType dtype, Device device = {});
  /// A view of host memory that `owner` keeps alive (null for memory that outlives all tensors).
  static Tensor wrap(void* data, Shape shape, DType dtype, std::shared_ptr<const void> owner);
  /// A copy of `values`.
  template <class T>
  static Tensor of(std::span<const T> values, Shape shape);
  template <class T>
  static Tensor of(std::initializer_list<T> values, Shape shape) {
    return of(std::span<const T>(values.begin(), values.size()), std::move(shape));
  }

  const Shape& shape() const { return shape_; }
  std::int64_t shape(std::size_t axis) const { return shape_.at(axis); }
  DType dtype() const { return dtype_; }
  std::int64_t numel() const { return numel_; }
  std::int64_t bytes() const { return numel_ * size_of(dtype_); }
  bool empty() const { return numel_ == 0; }
  Device device() const { return device_; }

  // Addresses. A const Tensor gives read access only, so that a function's signature shows what it
  // may write. A copy or view of it that is not const gives write access to the shared memory.

  /// Host address. Throws Error(internal) if T is not the element type, the memory is on a device,
  /// or there is none, in a dry run.
  template <class T>
  T* data() {
    check_type(dtype_of<T>());
    return static_cast<T*>(raw());
  }
  template <class T>
  const T* data() const {
    check_type(dtype_of<T>());
    return static_cast<const T*>(raw());
  }
  template <class T>
  std::span<T> span() {
    return {data<T>(), static_cast<std::size_t>(numel_)};
  }
  template <class T>
  std::span<const T> span() const {
    return {data<T>(), static_cast<std::size_t>(numel_)};
  }
  void* raw() { return address_on({}); }
  const void* raw() const { return address_on({}); }
  /// Address for kernels on `device`. Throws Error(internal) if the memory is on another device; a
  /// tensor without elements counts as being on every device.
  void* address_on(Device device) {
    check_device(device);
    return data_;
  }
  const void* address_on(Device device) const {
    check_device(device);
    return data_;
  }

  /// Elements [begin, begin + count) of the leading axis: a view. Not recorded on a tape, as are
  /// other types and devices: ops::row_range().
  Tensor rows(std::int64_t begin, std::int64_t count) const;
  /// The same elements in another shape: a view.
  Tensor reshape(Shape shape) const;
  /// Some of the memory as another array, from byte `begin` on: a view. Error(internal) unless it
  /// lies within this tensor and begins at a multiple of the element size.
  Tensor view_bytes(std::int64_t begin, Shape shape, DType dtype) const;
  /// The same values in another type (a copy), or the tensor itself when the type is the same.
  /// Floating types only; rounds to nearest even.
  Tensor to(DType dtype) const;
  /// The same values on another device (a copy), or the tensor itself when it is there.
  Tensor on(Device device) const;
  Tensor clone() const;
  /// Copies the values of `other`, which has the same shape and type. Within the host or a device,
  /// or between the host and a device; throws Error(internal) for two different devices, and for a
  /// source that has only a shape, unless this tensor has no values either.
  void copy_from(const Tensor& other);

 private:
  void check_type(DType dtype) const {
    if (dtype_ != dtype) misread(dtype);
  }
  void check_device(Device device) const {
    if (device_ != device && numel_ > 0) misplaced(device);
  }
  [[noreturn]] void misread(DType dtype) const;
  [[noreturn]] void misplaced(Device device) const;

  friend class Tape;
  friend struct TapeValue;
  std::shared_ptr<const void> owner_;
  void* data_ = nullptr;
  Shape shape_{0};
  std::int64_t numel_ = 0;
  DType dtype_ = DType::float32;
  Device device_;
  /// On a tape (tensor/tape.hpp); 0 if it needs no gradient. Copies and reshaped views have the
  /// same.
  std::int64_t number_ = 0;
};

/// Calls f with a value of the C++ type of a floating dtype: float, BFloat16 or Float16.
template <class F>
decltype(auto) visit_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32:
      return f(float{});
    case DType::bfloat16:
      return f(BFloat16{});
    case DType::float16:
      return f(Float16{});
    default:
      fail(Status::internal, "{} is not a floating type", name_of(dtype));
  }
}

template <class T>
Tensor Tensor::of(std::span<const T> values, Shape shape) {
  Tensor t = empty(std::move(shape), dtype_of<T>());
  expect(t.numel() == static_cast<std::int64_t>(values.size()), "{} values for shape {}",
         values.size(), t.shape());
  for (std::size_t i = 0; i < values.size(); ++i) t.data<T>()[i] = values[i];
  return t;
}

}  // namespace reelmesh

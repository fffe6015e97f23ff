#pragma once
#include <algorithm>
#include <cmath>
#include <random>

#include "tensor/tensor.hpp"

namespace reelmesh::test {

/// Normally distributed values (standard deviation `scale`), fixed by `seed`, rounded to `dtype`.
inline Tensor random_tensor(const Shape& shape, unsigned seed, DType dtype = DType::float32,
                            float scale = 1.0F) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  Tensor t = Tensor::empty(shape, DType::float32);
  for (float& x : t.span<float>()) x = normal(engine);
  return t.to(dtype);
}

/// As random_tensor, made on `device` from values that repeat after 1,000,003 elements (a prime
/// number, so rows differ): a host needs a second for 30 million values.
inline Tensor repeated_random_tensor(const Shape& shape, unsigned seed, DType dtype, float scale,
                                     Device device) {
  constexpr std::int64_t some = 1'000'003;
  const std::int64_t count = numel(shape);
  const Tensor values = random_tensor({std::min(some, count)}, seed, dtype, scale).on(device);
  Tensor all = Tensor::empty({count}, dtype, device);
  for (std::int64_t first = 0; first < count; first += some) {
    const std::int64_t n = std::min(some, count - first);
    all.rows(first, n).copy_from(values.rows(0, n));
  }
  return all.reshape(shape);
}

/// Whether shape, dtype and all bits are equal.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const auto* x = static_cast<const std::byte*>(a.raw());
  return std::equal(x, x + a.bytes(), static_cast<const std::byte*>(b.raw()));
}

/// max |a − b| / max |b|; INFINITY if `a` has a value that is not finite.
inline double relative_error(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(DType::float32), y = b.to(DType::float32);
  expect(x.numel() == y.numel(), "{} compared with {}", to_string(a.shape()), to_string(b.shape()));
  double difference = 0, largest = 1e-30;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double p = x.data<float>()[i], q = y.data<float>()[i];
    if (!std::isfinite(p)) return INFINITY;
    difference = std::max(difference, std::abs(p - q));
    largest = std::max(largest, std::abs(q));
  }
  return difference / largest;
}

/// √(mean |a − b|²) / max |b| of float32 tensors.
inline double rms_error(const Tensor& a, const Tensor& b) {
  double sum = 0, largest = 0;
  for (std::int64_t i = 0; i < b.numel(); ++i) {
    sum += std::pow(double(a.data<float>()[i]) - double(b.data<float>()[i]), 2);
    largest = std::max(largest, std::abs(double(b.data<float>()[i])));
  }
  return std::sqrt(sum / double(b.numel())) / largest;
}

}  // namespace reelmesh::test

#pragma once
// Tests at the sizes of real models: 16-bit results of a GPU against float32 on the same GPU, and
// that against float64 on the host at some places. Inputs have values of the 16-bit type, so both
// compute with the same numbers. An emulated GPU runs them at small sizes.
#include <cmath>
#include <vector>

#include "ops/parallel.hpp"
#include "support/test_device.hpp"

namespace reelmesh::test {

/// The largest relative error of rounding to nearest: half the distance of two neighbours.
inline double unit_roundoff(DType dtype) {
  return dtype == DType::bfloat16 ? std::ldexp(1.0, -8) : std::ldexp(1.0, -11);
}

/// Bound of the error of a float32 result, relative to the largest: 1/8 of float16's unit roundoff,
/// so that it does not matter in comparisons of 16-bit results. Sums of n products of magnitude m
/// in float32 have an error of about √n·m·2⁻²⁴: 7e-6 m for the longest, of 12,288.
inline const double float32_tolerance = std::ldexp(1.0, -14);

/// Differences of all elements of two tensors.
struct Errors {
  double max = 0;  ///< max |a − b| / max |b|
  double rms = 0;  ///< √(Σ(a − b)² / Σb²)
};

/// a, b: floating types, on the same device. INFINITY where `a` has a value that is not finite.
inline Errors errors(const Tensor& a, const Tensor& b) {
  expect(a.numel() == b.numel(), "{} compared with {}", to_string(a.shape()), to_string(b.shape()));
  constexpr std::int64_t slice = 1 << 24,
                         chunk = 1 << 16;  // elements copied to the host, of a task
  struct Sums {
    double difference = 0, largest = 0, differences = 0, squares = 0;
  };
  Sums total;
  const Tensor flat_a = a.reshape({a.numel()}), flat_b = b.reshape({b.numel()});
  for (std::int64_t first = 0; first < a.numel(); first += slice) {
    const std::int64_t count = std::min(slice, a.numel() - first);
    const Tensor x = back(flat_a.rows(first, count).to(DType::float32));
    const Tensor y = back(flat_b.rows(first, count).to(DType::float32));
    std::vector<Sums> sums(static_cast<std::size_t>((count + chunk - 1) / chunk));
    ops::parallel_for(static_cast<std::int64_t>(sums.size()), 1, [&](std::int64_t task) {
      Sums of_task;
      for (std::int64_t i = task * chunk; i < std::min(count, (task + 1) * chunk); ++i) {
        const double p = x.data<float>()[i], q = y.data<float>()[i];
        const double difference = std::isfinite(p) ? std::abs(p - q) : INFINITY;
        of_task.difference = std::max(of_task.difference, difference);
        of_task.largest = std::max(of_task.largest, std::abs(q));
        of_task.differences += difference * difference;
        of_task.squares += q * q;
      }
      sums[static_cast<std::size_t>(task)] = of_task;
    });
    for (const Sums& of_task : sums) {
      total.difference = std::max(total.difference, of_task.difference);
      total.largest = std::max(total.largest, of_task.largest);
      total.differences += of_task.differences;
      total.squares += of_task.squares;
    }
  }
  return {total.difference / total.largest, std::sqrt(total.differences / total.squares)};
}

/// Checks both errors, and prints them with the name of the test (tests/gpu/run picks these lines).
inline void expect_errors(const char* what, const Errors& found, const Errors& allowed) {
  fmt::print("{}, {}: error {:.2g} of the largest (allowed {:.2g}), rms {:.2g} (allowed {:.2g})\n",
             testing::UnitTest::GetInstance()->current_test_info()->name(), what, found.max,
             allowed.max, found.rms, allowed.rms);
  EXPECT_LE(found.max, allowed.max) << what;
  EXPECT_LE(found.rms, allowed.rms) << what;
}

/// Fixture; skips without a CUDA device.
template <class Parameter>
class TruthTest : public testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
  }
};

inline const auto half_types = {DType::bfloat16, DType::float16};

}  // namespace reelmesh::test

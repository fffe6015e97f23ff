#pragma once
// The device on which tests run kernels: a GPU or an emulated GPU. Results are compared with those
// of the CPU.
#include <gtest/gtest.h>

#include "support/random_tensor.hpp"
#include "tensor/device.hpp"

namespace reelmesh::test {

/// The device of these tests.
inline Device test_device() { return {0}; }

/// A copy on test_device(), which ops may write to; back() copies to the host.
inline Tensor there(const Tensor& x) { return x.on(test_device()); }
inline Tensor back(const Tensor& x) { return x.on({}); }

/// `real` for a GPU, `small` for an emulated GPU, which would take too long.
inline std::int64_t size([[maybe_unused]] std::int64_t small, [[maybe_unused]] std::int64_t real) {
#ifdef REELMESH_EMULATED_GPU
  return small;
#else
  return real;
#endif
}

/// Fixture of tests on test_device(). Skips them, with the reason, if there is no GPU.
class OnTestDevice : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_of_rank(Backend::cuda, 0);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

/// Fixture of tests for each element type.
class KernelTest : public OnTestDevice, public testing::WithParamInterface<DType> {
 protected:
  /// For results rounded once from float32; relative to the largest value.
  static double tolerance() {
    switch (GetParam()) {
      case DType::bfloat16:
        return 1e-2;
      case DType::float16:
        return 2e-3;
      default:
        return 1e-5;
    }
  }
};

inline const auto all_types = testing::Values(DType::float32, DType::bfloat16, DType::float16);
inline std::string type_name(const testing::TestParamInfo<DType>& info) {
  return std::string(name_of(info.param));
}

}  // namespace reelmesh::test

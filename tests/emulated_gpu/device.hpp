#pragma once
// Shared by the tests of the emulated GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "cuda_runtime.h"
#include "emulated_gpu/stream.hpp"

namespace reelmesh::emulated {

inline void expect_status(cudaError_t found, cudaError_t expected) {
  EXPECT_STREQ(cudaGetErrorName(found), cudaGetErrorName(expected));
}
inline void succeed(cudaError_t status) { expect_status(status, cudaSuccess); }

/// A test with two streams of device 0.
class EmulatedGpu : public testing::Test {
 protected:
  void SetUp() override {
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    succeed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    succeed(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  }
  void TearDown() override {
    succeed(cudaStreamDestroy(stream));
    succeed(cudaStreamDestroy(other));
    cudaGetLastError();
  }

  std::byte* memory(std::size_t bytes) {
    void* address = nullptr;
    succeed(cudaMallocAsync(&address, bytes, stream));
    return static_cast<std::byte*>(address);
  }
  /// Pinned host memory, to be freed by cudaFreeHost.
  static std::byte* pinned(std::size_t bytes) {
    void* address = nullptr;
    succeed(cudaMallocHost(&address, bytes));
    return static_cast<std::byte*>(address);
  }
  /// Sets bytes, in stream order.
  void set(std::byte* to, int value, std::size_t bytes = 1) {
    succeed(cudaMemsetAsync(to, value, bytes, stream));
  }
  /// Reads bytes in the order of `where` (nullptr: `stream`), and waits for them.
  std::vector<int> read(const std::byte* from, std::size_t bytes, cudaStream_t where = nullptr) {
    std::vector<int> found(bytes);
    where = where == nullptr ? stream : where;
    succeed(enqueue(where, {"read", [&found, from] {
                              for (std::size_t i = 0; i < found.size(); ++i) {
                                found[i] = std::to_integer<int>(from[i]);
                              }
                            }}));
    succeed(cudaStreamSynchronize(where));
    return found;
  }

  cudaStream_t stream = nullptr, other = nullptr;
};

/// Expects `test` to be true in a new process in which this environment variable is set.
#define EXPECT_WITH_SETTING(name, value, test)          \
  testing::GTEST_FLAG(death_test_style) = "threadsafe"; \
  EXPECT_EXIT(                                          \
      {                                                 \
        ::setenv(name, value, 1);                       \
        std::_Exit((test) ? 0 : 1);                     \
      },                                                \
      testing::ExitedWithCode(0), "")

}  // namespace reelmesh::emulated

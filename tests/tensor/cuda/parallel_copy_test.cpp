// Copies between host memory and a GPU, whose host part several threads copy.
#include "tensor/cuda/parallel_copy.hpp"

#include <sched.h>

#include <cstring>
#include <thread>
#include <vector>

#include "support/test_device.hpp"

namespace reelmesh::test {
namespace {

// Below and above the size from which threads are used, that of a pinned piece and of several.
const std::vector<std::int64_t> counts{0,       1,       (1 << 20) - 1,  1 << 20, (1 << 20) + 1,
                                       4 << 20, 5000001, (16 << 20) + 3, 50000003};

std::vector<std::uint8_t> bytes(std::int64_t count, unsigned seed) {
  std::vector<std::uint8_t> made(static_cast<std::size_t>(count));
  std::uint32_t state = seed;
  for (std::uint8_t& byte : made) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return made;
}

TEST(ParallelCopy, CopiesAllBytesAndNoMore) {
  constexpr std::uint8_t untouched = 77;
  for (const std::int64_t count : counts) {
    const std::vector<std::uint8_t> from = bytes(count, 1);
    std::vector<std::uint8_t> into(from.size() + 2, untouched);
    cuda::parallel_copy(into.data() + 1, from.data(), count);
    EXPECT_EQ(into.front(), untouched);
    EXPECT_EQ(into.back(), untouched);
    EXPECT_EQ(std::memcmp(into.data() + 1, from.data(), from.size()), 0) << count << " bytes";
  }
}

TEST(ParallelCopy, IsCalledBySeveralThreads) {
  constexpr unsigned callers = 3;
  std::vector<std::vector<std::uint8_t>> copied(callers);
  std::vector<std::thread> threads;
  for (unsigned caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&copied, caller] {
      const std::vector<std::uint8_t> from = bytes(3000001, caller);
      copied[caller].resize(from.size());
      for (int i = 0; i < 20; ++i) {
        std::fill(copied[caller].begin(), copied[caller].end(), std::uint8_t{0});
        cuda::parallel_copy(copied[caller].data(), from.data(), std::ssize(from));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (unsigned caller = 0; caller < callers; ++caller) {
    EXPECT_EQ(copied[caller], bytes(3000001, caller));
  }
}

TEST(ParallelCopy, UsesThreadsOfTheProcess) {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  EXPECT_EQ(cuda::copy_threads(), std::min(CPU_COUNT(&cores), 4));
}

class TensorOfManyPieces : public OnTestDevice {};

TEST_F(TensorOfManyPieces, ComesBackAsItWent) {
  for (const std::int64_t count : counts) {
    const std::vector<std::uint8_t> from = bytes(count, 2);
    Tensor host = Tensor::empty({count}, DType::uint8);
    if (count > 0) std::memcpy(host.raw(), from.data(), from.size());
    const Tensor returned = back(there(host));
    ASSERT_EQ(returned.bytes(), count);
    if (count == 0) continue;
    EXPECT_EQ(std::memcmp(returned.raw(), from.data(), from.size()), 0) << count << " bytes";
  }
}

}  // namespace
}  // namespace reelmesh::test

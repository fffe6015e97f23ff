#include "emulated_gpu/threads.hpp"

#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "emulated_gpu/device.hpp"

namespace reelmesh::on_host {
namespace {

using Numbers = std::vector<unsigned>;

TEST(KernelThreads, EachRunsOnceAndKnowsItsIndices) {
  Numbers times(3 * 70);
  run({"places", 3, 70, 0}, [&] {
    EXPECT_EQ(blockDim.x, 70U);
    EXPECT_EQ(gridDim.x, 3U);
    EXPECT_EQ(lane(), static_cast<int>(threadIdx.x % 32));
    ++times[blockIdx.x * 70 + threadIdx.x];
  });
  EXPECT_EQ(times, Numbers(3 * 70, 1));
}

TEST(KernelThreads, BarriersKeepThemTogether) {
  constexpr unsigned threads = 130, rounds = 5;
  Numbers sums(threads), numbers(threads);
  run({"barriers", 2, threads, 0}, [&] {
    for (unsigned round = 0; round < rounds; ++round) {
      numbers[threadIdx.x] = round + 1;
      barrier();
      for (const unsigned n : numbers) EXPECT_EQ(n, round + 1);
      sums[threadIdx.x] += numbers[(threadIdx.x + 1) % threads];
      barrier();
    }
  });
  EXPECT_EQ(sums, Numbers(threads, 2 * 15));
}

TEST(KernelThreads, WarpsMeetByThemselves) {
  // The last warp has 6 lanes; warp w synchronizes w + 1 times.
  Numbers met(70), lane_counts(70);
  run({"warps", 1, 70, 0}, [&] {
    for (unsigned i = 0; i <= threadIdx.x / 32; ++i) {
      struct Lane {
        unsigned count;
      } mine{0};
      warp_collective(&mine, [](void* const* all, int count) {
        for (int l = 0; l < count; ++l) {
          static_cast<Lane*>(all[l])->count = static_cast<unsigned>(count);
        }
      });
      ++met[threadIdx.x];
      lane_counts[threadIdx.x] = mine.count;
    }
  });
  for (unsigned i = 0; i < 70; ++i) {
    EXPECT_EQ(met[i], i / 32 + 1);
    EXPECT_EQ(lane_counts[i], i < 64 ? 32U : 6U);
  }
}

TEST(KernelThreads, SharedMemoryIsNaNForEachBlock) {
  run({"shared", 2, 4, 16}, [&] {
    EXPECT_EQ(shared_memory()[4 * threadIdx.x], std::byte{0xff});
    barrier();
    shared_memory()[4 * threadIdx.x] = std::byte{0};
  });
}

TEST(KernelThreads, CopiesComeWhenTheyAreWaitedFor) {
  run({"copies", 1, 2, 0}, [] {
    alignas(16) unsigned from[3][4] = {{1}, {2}, {3}}, into[3][4] = {};
    for (int i = 0; i < 3; ++i) {
      copy_async(into[i], from[i]);
      end_group();
    }
    wait_for_groups(1);
    EXPECT_EQ(into[1][0], 2U);
    EXPECT_EQ(into[2][0], 0U);
    wait_for_groups(0);
    EXPECT_EQ(into[2][0], 3U);
  });
}

TEST(KernelThreads, CopiesOfAThreadEndWithIt) {
  alignas(16) unsigned from[4] = {1}, into[4] = {};
  run({"copies", 1, 2, 0}, [&] {
    if (threadIdx.x == 0) copy_async(into, from);
    end_group();
    if (threadIdx.x == 1) wait_for_groups(0);
  });
  EXPECT_EQ(into[0], 0U);
}

TEST(KernelThreads, EndTheProcessWhereTheyWaitForNobody) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto some_meet = [] {
    run({"lonely", 1, 40, 0}, [] {
      if (threadIdx.x > 3) barrier();
    });
  };
  EXPECT_DEATH(some_meet(), "kernel lonely, block 0: threads wait for others that do not come");
}

TEST(KernelThreads, EndTheProcessWhereAGpuWouldGoOnOrStop) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto write_beyond = [] {
    run({"wide", 2, 4, 16}, [] { shared_memory()[4 * threadIdx.x + blockIdx.x] = std::byte{0}; });
    run({"wide", 2, 4, 16}, [] { shared_memory()[5 * threadIdx.x + 1] = std::byte{0}; });
  };
  EXPECT_DEATH(write_beyond(), "kernel wide, block 0: writes beyond its shared memory");
  const auto copy_from_odd = [] {
    run({"odd", 1, 1, 0}, [] {
      alignas(16) unsigned from[8] = {}, into[4] = {};
      copy_async(into, from + 2);
    });
  };
  EXPECT_DEATH(copy_from_odd(), "kernel odd, block 0: 16 bytes at an odd address");
  const auto some_lanes = [] {
    run({"short", 1, 40, 0}, [] { full_warp_collective(nullptr, [](void* const*, int) {}); });
  };
  EXPECT_DEATH(some_lanes(), "kernel short, block 0: a warp of fewer threads");
}

// Each thread reads what the one before it wrote, without a barrier; then each block what the one
// before it wrote.
bool some_find_nothing() {
  constexpr unsigned threads = 64, blocks = 7;
  Numbers numbers(threads), of_blocks(blocks);
  unsigned missing = 0, missing_blocks = 0;
  run({"racing", 1, threads, 0}, [&] {
    numbers[threadIdx.x] = 1;
    if (threadIdx.x > 0 && numbers[threadIdx.x - 1] == 0) ++missing;
  });
  run({"racing", blocks, 1, 0}, [&] {
    of_blocks[blockIdx.x] = 1;
    if (blockIdx.x > 0 && of_blocks[blockIdx.x - 1] == 0) ++missing_blocks;
  });
  return missing > 0 && missing_blocks > 0;
}

TEST(KernelThreads, RunInRandomOrderSoThatRacesShow) {
  EXPECT_WITH_SETTING("REELMESH_EMULATED_GPU_ORDER", "0", !some_find_nothing());
  EXPECT_WITH_SETTING("REELMESH_EMULATED_GPU_ORDER", "1", some_find_nothing());
}

TEST(KernelThreads, KernelsOfTwoStreamsDoNotMix) {
  constexpr unsigned kernels = 1000;
  Numbers results(2);
  std::latch start(2);
  std::vector<std::thread> both;
  for (unsigned i = 0; i < 2; ++i) {
    both.emplace_back([&, i] {
      start.arrive_and_wait();
      for (unsigned k = 0; k < kernels; ++k) {
        unsigned sum = 0;
        run({"sum", 1, 64, 0}, [&] {
          sum += threadIdx.x;
          barrier();
          if (threadIdx.x == 0) results[i] += sum;
        });
      }
    });
  }
  for (std::thread& thread : both) thread.join();
  EXPECT_EQ(results, Numbers(2, kernels * 63 * 32));
}

}  // namespace
}  // namespace reelmesh::on_host

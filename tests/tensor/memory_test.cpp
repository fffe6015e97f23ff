#include "tensor/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

namespace reelmesh {
namespace {

constexpr std::int64_t mebibyte = 1 << 20;

class Memory : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "AddressSanitizer has all blocks";
#endif
    release_free_memory();
    before_ = host_memory_now();
  }
  void TearDown() override {
    release_free_memory();
    EXPECT_EQ(host_memory_now().used, before_.used);
  }
  std::int64_t used() const { return host_memory_now().used - before_.used; }
  std::int64_t range() const { return host_memory_now().range - before_.range; }

  HostMemory before_;
};

TEST_F(Memory, TheRangeDoesNotGrowWhereAFreeBlockFits) {
  for (int i = 0; i < 10; ++i) {
    const auto large = host_memory(8 * mebibyte);
    { const auto one = host_memory(3 * mebibyte), two = host_memory(5 * mebibyte); }
    const auto both = host_memory(8 * mebibyte);  // in the room of the two
    EXPECT_EQ(used(), 16 * mebibyte);
    EXPECT_EQ(range(), 16 * mebibyte);
  }
}

TEST_F(Memory, TheSmallestBlockThatFitsIsTaken) {
  auto one = host_memory(8 * mebibyte), wall = host_memory(mebibyte), two = host_memory(mebibyte),
       end = host_memory(mebibyte);
  const void* small = two.get();
  one.reset();
  two.reset();
  EXPECT_EQ(host_memory(mebibyte).get(), small);
}

TEST_F(Memory, BlocksNeverOverlapAndKeepTheirBytes) {
  struct Block {
    std::shared_ptr<void> memory;
    std::int64_t bytes;
    unsigned char value;
  };
  std::mt19937 random(1);
  std::vector<Block> blocks;
  for (int i = 0; i < 400; ++i) {
    const std::int64_t bytes = 200'000 + static_cast<std::int64_t>(random() % 900'000);
    blocks.push_back({host_memory(bytes), bytes, static_cast<unsigned char>(i)});
    std::fill_n(static_cast<unsigned char*>(blocks.back().memory.get()), bytes,
                blocks.back().value);
    if (blocks.size() < 20) continue;
    std::swap(blocks[random() % blocks.size()], blocks.back());
    const Block& last = blocks.back();
    const auto* data = static_cast<const unsigned char*>(last.memory.get());
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
    ASSERT_EQ(std::count(data, data + last.bytes, last.value), last.bytes);
    blocks.pop_back();
  }
}

TEST_F(Memory, FreeMemoryGoesBack) {
  { const auto block = host_memory(8 * mebibyte); }
  EXPECT_EQ(range(), 8 * mebibyte);
  release_free_memory();
  EXPECT_EQ(range(), 0);
}

TEST_F(Memory, SmallBlocksAndWhatDoesNotFitAreNotOfTheRange) {
  const auto small = host_memory(1000);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(used(), 0);
  EXPECT_EQ(host_memory(std::int64_t{1} << 60), nullptr);
}

TEST_F(Memory, ThreadsTakeAndGiveBackAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 1; i < 200; ++i) {
        const auto block = host_memory((t + i % 7 + 1) * mebibyte / 2);
        static_cast<char*>(block.get())[i] = static_cast<char>(t);
        ASSERT_EQ(static_cast<char*>(block.get())[i], t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace reelmesh

#include "tensor/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
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
    before_ = host_memory_in_use();
  }
  void TearDown() override {
    release_free_memory();
    EXPECT_EQ(host_memory_in_use().used, before_.used);
  }
  std::int64_t used() const { return host_memory_in_use().used - before_.used; }
  std::int64_t range() const { return host_memory_in_use().range - before_.range; }

  HostMemoryInUse before_;
};

TEST_F(Memory, TheRangeDoesNotGrowWhereAFreeBlockFits) {
  for (int i = 0; i < 10; ++i) {
    const auto large = host_memory(8 * mebibyte);
    { const auto one = host_memory(3 * mebibyte), two = host_memory(5 * mebibyte); }
    const auto both = host_memory(8 * mebibyte);  // in the space of the two
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

// Resident bytes of this process. Memory outside the range hardly changes during a test.
std::int64_t resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, pages = 0;
  file >> all >> pages;
  return pages * 4096;
}

TEST_F(Memory, PagesOfHolesAreGivenBack) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer has memory of its own for each block";
#endif
  const std::int64_t resident_before = resident();
  std::int64_t max = 0;
  const auto touched = [&](std::int64_t bytes) {
    auto block = host_memory(bytes);
    std::fill_n(static_cast<char*>(block.get()), bytes, 'x');
    max = std::max(max, used());
    EXPECT_LT(resident() - resident_before, max + max_free_resident(max) + 8 * mebibyte);
    return block;
  };
  std::vector<std::shared_ptr<void>> blocks, walls, larger;
  for (int i = 0; i < 6; ++i) {
    blocks.push_back(touched(40 * mebibyte));
    walls.push_back(touched(mebibyte));
  }
  blocks.clear();
  // Too large for any of the six holes.
  for (int i = 0; i < 3; ++i) larger.push_back(touched(60 * mebibyte));
  EXPECT_EQ(used(), 186 * mebibyte);
  EXPECT_EQ(range(), 426 * mebibyte);
  // These fit into the holes. Their pages become resident again; other pages are returned.
  for (int i = 0; i < 6; ++i) blocks.push_back(touched(10 * mebibyte));
  EXPECT_EQ(range(), 426 * mebibyte);
  for (const auto& wall : walls) {
    const char* data = static_cast<const char*>(wall.get());
    EXPECT_EQ(std::count(data, data + mebibyte, 'x'), mebibyte);
  }
}

TEST_F(Memory, HolesThatAreSmallStayResident) {
  const auto wall = host_memory(mebibyte);
  auto block = host_memory(20 * mebibyte);
  const auto end = host_memory(mebibyte);
  char* data = static_cast<char*>(block.get());
  std::fill_n(data, 20 * mebibyte, 'x');
  block.reset();
  const auto other = host_memory(24 * mebibyte);
  EXPECT_EQ(data[10 * mebibyte], 'x');  // not cleared by the operating system
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

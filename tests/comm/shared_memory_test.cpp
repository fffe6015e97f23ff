#include "comm/shared_memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "support/expect_error.hpp"
#include "support/ranks.hpp"

namespace reelmesh {
namespace {

// Files of the group's first rank; other groups of the launch have their own.
std::size_t names_in_shared_memory() {
  const std::string begin =
      "reelmesh-" + test::world().broadcast(std::to_string(getpid()), 0) + "-";
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().starts_with(begin)) ++count;
  }
  return count;
}

TEST(SharedMemory, IsWrittenByEachAndReadByAll) {
  const comm::Group& world = test::world();
  const auto ranks = static_cast<std::size_t>(world.size()), me = std::size_t(world.rank());
  constexpr std::size_t each = 10'000;
  const auto memory = comm::shared_memory(world, static_cast<std::int64_t>(ranks * each));
  for (std::size_t i = 0; i < ranks * each; ++i) {
    if (memory.get()[i] != std::byte{}) GTEST_FAIL() << "byte " << i << " is not 0";
  }
  world.barrier();
  std::fill_n(memory.get() + me * each, each, std::byte(me + 1));
  world.barrier();
  for (std::size_t i = 0; i < ranks * each; ++i) {
    if (memory.get()[i] != std::byte(i / each + 1)) GTEST_FAIL() << "byte " << i;
  }
  EXPECT_EQ(names_in_shared_memory(), 0U) << "a rank that is killed leaves nothing behind";
}

TEST(SharedMemory, TooMuchIsRefusedOnAllRanks) {
  test::expect_error(
      Status::unavailable, [] { comm::shared_memory(test::world(), std::int64_t{1} << 50); },
      "of memory for the ranks of this host to share");
  EXPECT_EQ(names_in_shared_memory(), 0U);
}

TEST(IndependentGroup, MessagesOverlapWithThoseOfItsParent) {
  const comm::Group& world = test::world();
  const comm::Group other = world.independent();
  EXPECT_EQ(other.rank(), world.rank());
  EXPECT_EQ(other.size(), world.size());
  const int ranks = world.size(), next = (world.rank() + 1) % ranks,
            before = (world.rank() + ranks - 1) % ranks;
  const auto of = [](double value) { return Tensor::of({static_cast<float>(value)}, {1}); };
  const Tensor early = of(0), late = of(0);
  const comm::Message send{next, of(world.rank())}, receive{before, early};
  comm::PendingMessages pending = other.begin_exchange({&send, 1}, {&receive, 1});
  const comm::Message second{next, of(100 + world.rank())}, answer{before, late};
  world.exchange({&second, 1}, {&answer, 1});
  pending.finish();
  EXPECT_EQ(early.data<float>()[0], float(before));
  EXPECT_EQ(late.data<float>()[0], float(100 + before));
}

}  // namespace
}  // namespace reelmesh

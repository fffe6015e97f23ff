#include "comm/group.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/background.hpp"
#include "support/ranks.hpp"

namespace reelmesh::comm {
namespace {

Tensor of(std::vector<int>& values) {
  return Tensor::wrap(values.data(), {std::ssize(values)}, DType::int32, nullptr);
}

TEST(Group, RangesShareTheWorldOut) {
  const Group world = test::world();
  const Group first = world.range(0, 1);
  EXPECT_EQ(first.member(), world.rank() == 0);
  EXPECT_EQ(first.size(), world.rank() == 0 ? 1 : 0);
  if (world.size() > 1) {
    const Group rest = world.range(1, world.size() - 1);
    EXPECT_EQ(rest.rank(), world.rank() - 1);
    EXPECT_EQ(rest.member(), world.rank() > 0);
  }
  EXPECT_EQ(world.on_this_host().size(), world.size());
}

TEST(Group, ReordersRanks) {
  const Group world = test::world();
  std::vector<int> backwards;
  for (int r = world.size(); r-- > 0;) backwards.push_back(r);
  const Group group = world.in_order(backwards);
  EXPECT_EQ(group.rank(), world.size() - 1 - world.rank());
  EXPECT_EQ(group.broadcast(std::to_string(world.rank()), 0), std::to_string(world.size() - 1));
  EXPECT_THROW(world.in_order({}), Error);
}

TEST(Group, SumsIntegersInPlace) {
  const Group world = test::world();
  std::vector<std::int64_t> values{1, world.rank(), std::int64_t{1} << 60};
  world.sum(values);
  const std::int64_t n = world.size();
  EXPECT_EQ(values, (std::vector<std::int64_t>{n, n * (n - 1) / 2, n << 60}));
}

TEST(Group, ReductionsAndBroadcast) {
  const Group world = test::world();
  EXPECT_EQ(world.max(std::int64_t{world.rank()}), world.size() - 1);
  EXPECT_EQ(world.min(1.5 + world.rank()), 1.5);
  EXPECT_EQ(world.sum(2.0), 2.0 * world.size());
  EXPECT_EQ(world.broadcast(world.rank() == world.size() - 1 ? "spoken" : "", world.size() - 1),
            "spoken");
}

TEST(Group, GathersBlocksOfUnlikeSizes) {
  const Group world = test::world();
  const std::string mine(static_cast<std::size_t>(world.rank() * 3), 'a');
  const auto all = world.all_gather(mine);
  ASSERT_EQ(all.size(), std::size_t(world.size()));
  for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r], std::string(r * 3, 'a'));
  const auto gathered = world.gather(mine, 0);
  if (world.rank() == 0) {
    EXPECT_EQ(gathered, all);
  } else {
    EXPECT_TRUE(gathered.empty());
  }
}

TEST(Group, ExchangesAroundARing) {
  const Group world = test::world();
  if (world.size() == 1) return;  // a ring of one has no messages
  std::vector<int> sent(1000, world.rank()), received(1000, -1);
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  const Message send{next, of(sent)}, receive{previous, of(received)};
  world.exchange({&send, 1}, {&receive, 1});
  EXPECT_EQ(received, std::vector<int>(1000, previous));
}

TEST(Group, TransfersMayBeUnderWayAtOnce) {
  const Group world = test::world();
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  EXPECT_EQ(background_work, nullptr);
  // Too large for MPI's eager protocol: the exchanges really are pending.
  constexpr std::size_t count = 3, numbers = 1 << 20;
  std::vector<std::vector<int>> sent, received(count, std::vector<int>(numbers, -1));
  {
    std::vector<PendingMessages> pending;
    for (std::size_t i = 0; i < count; ++i) {
      sent.emplace_back(numbers, int(i) * 100 + world.rank());
      const Message send{next, of(sent[i])};
      const Message receive{previous, of(received[i])};
      pending.push_back(world.begin_exchange({&send, 1}, {&receive, 1}));
    }
    EXPECT_NE(background_work, nullptr);
    background();
    pending[1].finish();
    EXPECT_EQ(received[1], std::vector<int>(numbers, 100 + previous));
  }  // destructors finish the other exchanges
  EXPECT_EQ(background_work, nullptr);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(received[i], std::vector<int>(numbers, int(i) * 100 + previous));
  }
}

TEST(Group, WaitsForLateRanks) {
  const Group world = test::world();
  const bool late = world.rank() == 0;
  std::vector<int> peers;  // rank 0 meets all others, they meet rank 0
  for (int r = late ? 1 : 0; r < (late ? world.size() : 1); ++r) peers.push_back(r);
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  if (late) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  world.barrier_with(peers);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(100));
}

TEST(Group, NonMemberMayNotUseIt) { EXPECT_THROW(Group().barrier(), Error); }

}  // namespace
}  // namespace reelmesh::comm

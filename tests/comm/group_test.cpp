#include "comm/group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/background.hpp"
#include "comm/group_values.hpp"
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

TEST(Group, HasOneIndependentGroup) {
  const comm::Group group = test::world().split(0), copy = group;
  EXPECT_NE(group.independent().handle(), group.handle());
  EXPECT_EQ(group.independent().handle(), copy.independent().handle());
  EXPECT_NE(group.independent().handle(), test::world().split(0).independent().handle());
}

TEST(Environment, RaisesTheNumberOfOpenFiles) {
  rlimit files = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_GE(files.rlim_cur, std::min<rlim_t>(files.rlim_max, 1 << 20));
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

struct Point {
  std::int32_t x = 0;
  double y = 0;
  bool operator==(const Point&) const = default;
};

TEST(GroupValues, OneOfEachRank) {
  const Group world = test::world();
  const int last = world.size() - 1;
  const Point mine{world.rank(), 0.5 * world.rank()};
  EXPECT_EQ(broadcast_value(world, mine, last), (Point{last, 0.5 * last}));
  std::vector<Point> expected;
  for (int r = 0; r < world.size(); ++r) expected.push_back({r, 0.5 * r});
  EXPECT_EQ(all_gather_value(world, mine), expected);
  EXPECT_EQ(gather_value(world, mine, last),
            world.rank() == last ? expected : std::vector<Point>());
}

// Rank r has r values, so rank 0 has none.
TEST(GroupValues, VectorsOfDifferentLengths) {
  const Group world = test::world();
  const int last = world.size() - 1;
  const auto of_rank = [](int r) {
    return std::vector<Point>(static_cast<std::size_t>(r), Point{r, -r / 3.0});
  };
  const std::vector<Point> mine = of_rank(world.rank());
  for (int root = 0; root < world.size(); ++root) {
    EXPECT_EQ(broadcast_values(world, mine, root), of_rank(root));
  }
  std::vector<std::vector<Point>> expected;
  for (int r = 0; r < world.size(); ++r) expected.push_back(of_rank(r));
  EXPECT_EQ(all_gather_values(world, mine), expected);
  EXPECT_EQ(gather_values(world, mine, last),
            world.rank() == last ? expected : std::vector<std::vector<Point>>());
  const std::vector<std::vector<Point>> empty(static_cast<std::size_t>(world.size()));
  EXPECT_EQ(all_gather_values(world, std::vector<Point>()), empty);
}

// Texts may be empty, and contain any character.
TEST(GroupValues, Texts) {
  const Group world = test::world();
  const int last = world.size() - 1;
  const auto of_rank = [](int r) {
    std::vector<std::string> texts;
    for (int i = 0; i < r; ++i) texts.push_back(std::string(static_cast<std::size_t>(i), '\n'));
    return texts;
  };
  const std::vector<std::string> mine = of_rank(world.rank());
  for (int root = 0; root < world.size(); ++root) {
    EXPECT_EQ(broadcast_texts(world, mine, root), of_rank(root));
  }
  std::vector<std::vector<std::string>> expected;
  for (int r = 0; r < world.size(); ++r) expected.push_back(of_rank(r));
  EXPECT_EQ(all_gather_texts(world, mine), expected);
  EXPECT_EQ(gather_texts(world, mine, last),
            world.rank() == last ? expected : std::vector<std::vector<std::string>>());
}

// The last rank sends other types than the ranks before it expect.
TEST(GroupValues, RefusesBytesOfOtherTypes) {
  const Group world = test::world();
  const bool sends_others = world.rank() > 0 && world.rank() == world.size() - 1;
  const auto expect_refusal = [&](const auto& call) {
    try {
      call();
      EXPECT_EQ(world.size(), 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::internal);
      EXPECT_THAT(error.what(), testing::HasSubstr(fmt::format("rank {} sent", world.size() - 1)));
    }
  };
  if (sends_others) {
    world.all_gather("1234567");
    world.all_gather("12345678");  // two numbers
    world.broadcast("1234567", world.rank());
    return;
  }
  expect_refusal([&] { all_gather_values(world, std::vector<std::int32_t>{1}); });
  expect_refusal([&] { all_gather_value(world, std::int32_t{1}); });
  expect_refusal([&] { broadcast_values(world, std::vector<std::int32_t>{}, world.size() - 1); });
}

TEST(GroupValues, RefusesTextsWithOtherLengths) {
  const Group world = test::world();
  if (world.size() == 1) return;
  if (world.rank() == 1) {
    for (const std::int64_t length : {3, 1, -1}) {
      all_gather_values(world, std::vector<std::int64_t>{length});
      world.all_gather("ab");
    }
    return;
  }
  for (int i = 0; i < 3; ++i) EXPECT_THROW(all_gather_texts(world, {"cd"}), Error);
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

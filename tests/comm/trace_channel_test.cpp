#include "comm/trace_channel.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "comm/group_values.hpp"
#include "comm/mailbox.hpp"
#include "support/ranks.hpp"

namespace reelmesh::comm {
namespace {

/// Records all messages; resets the recorder before and after every test.
class RecordedMessages : public testing::Test {
 protected:
  void SetUp() override {
    trace::recorder() = {};
    trace::recorder().level = trace::Level::ops;
  }
  void TearDown() override { trace::recorder() = {}; }

  // Sends `bytes` to the next rank of the group, `count` times at once.
  static PendingMessages begin_ring(const Group& group, std::int64_t bytes, int count) {
    std::vector<Message> sends, receives;
    for (int i = 0; i < count; ++i) {
      sends.push_back({(group.rank() + 1) % group.size(), Tensor::empty({bytes}, DType::uint8)});
      receives.push_back(
          {(group.rank() + group.size() - 1) % group.size(), Tensor::empty({bytes}, DType::uint8)});
    }
    return group.begin_exchange(sends, receives);
  }

  // The rows of all ranks, with the ranks of MPI_COMM_WORLD that recorded them.
  std::vector<std::pair<int, trace::Message>> rows_of_all() const {
    std::vector<std::pair<int, trace::Message>> rows;
    const std::vector<int> ranks = ranks_in(world.handle(), MPI_COMM_WORLD);
    const auto messages = all_gather_values(world, trace::recorder().messages);
    for (std::size_t r = 0; r < messages.size(); ++r) {
      for (const trace::Message& row : messages[r]) rows.emplace_back(ranks[r], row);
    }
    return rows;
  }

  // Every send must have exactly one receive with the same key and bytes. → the number of pairs.
  std::size_t check_pairs() const {
    using Key =
        std::tuple<int, int, std::int64_t, std::int64_t>;  // sender, receiver, channel, number
    std::map<Key, std::int64_t> sends, receives;           // → bytes
    for (const auto& [rank, row] : rows_of_all()) {
      const Key key = row.sends ? Key{rank, row.peer, row.channel, row.number}
                                : Key{row.peer, rank, row.channel, row.number};
      EXPECT_TRUE((row.sends ? sends : receives).emplace(key, row.bytes).second);
      EXPECT_GE(row.duration_ns, 0);
    }
    EXPECT_EQ(sends, receives);
    return sends.size();
  }

  Group world = test::world();
};

TEST_F(RecordedMessages, EverySendHasOneReceive) {
  std::vector<int> backwards;
  for (int r = world.size(); r-- > 0;) backwards.push_back(r);
  const std::vector<Group> groups{world, world.in_order(backwards), world.independent(),
                                  world.split(world.rank() % 2)};
  std::size_t messages = 0;
  for (const Group& group : groups) {
    PendingMessages first = begin_ring(group, 100, 2), second = begin_ring(group, 1 << 20, 1);
    second.finish();
    first.finish();
    messages += 3;
  }
  Mailbox mailbox(world);
  for (int to = 0; to < world.size(); ++to) mailbox.post(to, {1, 2, 3});
  for (int i = 0; i < world.size(); ++i) mailbox.wait(std::chrono::minutes(1)).value();
  const auto ranks = static_cast<std::size_t>(world.size());
  EXPECT_EQ(check_pairs(), ranks * (messages + ranks));
}

TEST_F(RecordedMessages, GroupsHaveChannelsOfTheirOwn) {
  for (int i = 0; i < 3; ++i) begin_ring(world.split(0), 8, 1).finish();
  begin_ring(world.split(world.rank()), 8, 1).finish();  // a group of each rank
  std::map<std::int64_t, int> receives;                  // by channel
  for (const auto& [rank, row] : rows_of_all()) receives[row.channel] += row.sends ? 0 : 1;
  EXPECT_EQ(std::ssize(receives), 3 + world.size());
  for (const auto& [channel, count] : receives) EXPECT_TRUE(count == 1 || count == world.size());
}

TEST_F(RecordedMessages, StatesTheClipAndTheTimes) {
  const trace::Mark clip(&trace::Recorder::clip, 5), step(&trace::Recorder::step, 6);
  const std::int64_t before = trace::now_ns();
  begin_ring(world, 8, 1).finish();
  const std::int64_t after = trace::now_ns();
  ASSERT_EQ(trace::recorder().messages.size(), 2U);
  for (const trace::Message& row : trace::recorder().messages) {
    EXPECT_EQ(row.clip, 5);
    EXPECT_EQ(row.step, 6);
    EXPECT_EQ(row.layer, -1);
    EXPECT_EQ(row.bytes, 8);
    EXPECT_GE(row.start_ns, before);
    EXPECT_LE(row.start_ns + row.duration_ns, after);
  }
}

TEST_F(RecordedMessages, BelowOpsOnlyThoseOfHandOvers) {
  trace::recorder().level = trace::Level::layers;
  begin_ring(world, 8, 1).finish();
  Mailbox mailbox(world);
  mailbox.post(world.rank(), {1});
  mailbox.wait(std::chrono::minutes(1)).value();
  EXPECT_TRUE(trace::recorder().messages.empty());
  PendingMessages pending;
  {
    const trace::HandOverMark mark;
    pending = begin_ring(world, 8, 1);
  }
  pending.finish();
  EXPECT_EQ(check_pairs(), static_cast<std::size_t>(world.size()));
}

}  // namespace
}  // namespace reelmesh::comm

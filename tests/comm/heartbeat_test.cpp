#include "comm/heartbeat.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/stop.hpp"
#include "base/trace.hpp"
#include "support/many_ranks.hpp"
#include "support/ranks.hpp"

namespace reelmesh::comm {
namespace {

/// Keeps what the hooks are called with; answers a task message with its number plus 100.
class Record {
 public:
  explicit Record(bool first) : first_(first) {}

  HeartbeatHooks hooks() {
    return {.next_task =
                [this](int rank) {
                  const std::lock_guard lock(mutex_);
                  TaskMessage message;
                  message.number = first_ ? received_[rank] + 100 : sent_;
                  return message;
                },
            .task_received =
                [this](int rank, const TaskMessage& message) {
                  const std::lock_guard lock(mutex_);
                  const bool is_new = received_[rank] != message.number;
                  received_[rank] = message.number;
                  return first_ && is_new;
                },
            .observed =
                [this](std::span<const Peer> ranks, double) {
                  const std::lock_guard lock(mutex_);
                  ranks_.assign(ranks.begin(), ranks.end());
                }};
  }
  void send(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    sent_ = number;
  }
  std::int64_t received(int rank) {
    const std::lock_guard lock(mutex_);
    return received_[rank];
  }
  std::vector<Peer> ranks() {
    const std::lock_guard lock(mutex_);
    return ranks_;
  }

 private:
  bool first_;
  std::mutex mutex_;
  std::int64_t sent_ = 0;
  std::map<int, std::int64_t> received_;
  std::vector<Peer> ranks_;
};

template <class F>
bool becomes_true(F&& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(Heartbeat, FirstRankKnowsWhatAllDo) {
  const Group world = test::world();
  const trace::Mark step(&trace::Recorder::step, 10 + world.rank());
  Record record(world.rank() == 0);
  Heartbeat heartbeat(world, {}, record.hooks());
  EXPECT_TRUE(heartbeat.reaches_all());
  if (world.rank() == 0) {
    EXPECT_TRUE(becomes_true([&] {
      const std::vector<Peer> ranks = record.ranks();
      return std::ssize(ranks) == world.size() && std::ranges::all_of(ranks, &Peer::connected);
    }));
    const std::vector<Peer> ranks = record.ranks();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      EXPECT_EQ(ranks[r].last.step, 10 + static_cast<int>(r));
      EXPECT_EQ(ranks[r].open, r > 0);
    }
  }
  world.barrier();
  heartbeat.end();
  EXPECT_FALSE(heartbeat.running());
  for (std::size_t r = 1; r < record.ranks().size(); ++r) EXPECT_TRUE(record.ranks()[r].left);
}

TEST(Heartbeat, CarriesTasksAtOnce) {
  const Group world = test::world();
  Record record(world.rank() == 0);
  Heartbeat heartbeat(world, {}, record.hooks());
  if (world.rank() > 0) {
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t number = 1; number <= 20; ++number) {
      record.send(number);
      heartbeat.send_now();
      EXPECT_TRUE(becomes_true([&] { return record.received(0) == number + 100; }));
    }
    // Heartbeats alone would take 20 periods of 0.25 s.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(2500));
  }
  world.barrier();
}

TEST(Heartbeat, CarriesRequestsToStop) {
  const Group world = test::world();
  stop::reset();
  world.barrier();
  Record record(world.rank() == 0);
  {
    Heartbeat heartbeat(world, {.grace = 1000}, record.hooks());
    if (world.rank() == world.size() - 1) stop::request(stop::time_limit);
    EXPECT_TRUE(becomes_true([] { return stop::cause() == stop::time_limit; }));
    world.barrier();
  }
  stop::reset();
}

/// Rank 0 of a job of which the others are in this test.
class FirstOfMany : public testing::Test {
 protected:
  static constexpr int count = 200;

  void connect() {
    ranks.connect(1);
    ASSERT_TRUE(becomes_true([&] { return ranks.receive(1).has_value(); })) << "no answer";
    ranks.connect(count - 1);
    ASSERT_TRUE(becomes_true([&] { return ranks.receive(count).has_value(); }));
  }
  /// Beats that rank 1 has received since the last call.
  int received() {
    int beats = 0;
    while (const std::optional<Beat> beat = ranks.receive(1)) {
      ++beats;
      told_to_leave |= beat->kind == Beat::leaving;
    }
    return beats;
  }
  /// Beats that are due in the time since the last call, and two that may be.
  int due() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - std::exchange(last, now)).count();
    return static_cast<int>(4 * seconds) + 2;
  }

  Record record{true};
  Heartbeat heartbeat{Group::pretended(0, count + 1), {}, record.hooks()};
  test::ManyRanks ranks{heartbeat.announcement()};
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
  bool told_to_leave = false;
};

// Otherwise rank 0 sends as many beats as the square of the number of ranks.
TEST_F(FirstOfMany, ANewRankIsAnsweredAlone) {
  connect();
  EXPECT_LE(received(), due());
  ranks.leave();
  ranks.close();
}

TEST_F(FirstOfMany, SendsNoMoreBeatsWhileRanksEnd) {
  connect();
  std::future<void> ended = std::async(std::launch::async, [&] { heartbeat.end(); });
  received();
  due();
  ranks.leave(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LE(received(), due());
  EXPECT_FALSE(told_to_leave) << "before the last rank has left";
  ranks.send(1, Beat::leaving);
  EXPECT_TRUE(becomes_true([&] { return received() > 0 && told_to_leave; }));
  ranks.close();
  ended.get();
}

// One that has been met is not taken for a new one, however late a rank hears of it.
TEST(Heartbeat, CarriesRequestsToPlanAgain) {
  const Group world = test::world();
  stop::reset();
  world.barrier();
  Record record(world.rank() == 0);
  {
    Heartbeat heartbeat(world, {.grace = 1000}, record.hooks());
    for (int number = 1; number <= 2; ++number) {
      if (world.rank() == world.size() - 1) stop::request_new_plan();
      EXPECT_TRUE(becomes_true([] { return stop::new_plan_requested(); }));
      EXPECT_TRUE(stop::leaving());
      EXPECT_FALSE(stop::requested());
      EXPECT_EQ(stop::new_plans_requested(), number);
      world.barrier();
      stop::new_plan_made(number);
      world.barrier();
      std::this_thread::sleep_for(std::chrono::milliseconds(600));  // beats that were under way
      EXPECT_FALSE(stop::leaving());
      world.barrier();
    }
  }
  stop::reset();
}

}  // namespace
}  // namespace reelmesh::comm

#include "comm/connections.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <future>
#include <sstream>

#include "base/system.hpp"
#include "support/many_ranks.hpp"

namespace reelmesh::comm {
namespace {

// Answers the ranks that connect, until `rank` has its answer. → the ranks that were accepted.
std::vector<int> serve(Connections& first, std::future<std::optional<Beat>>& connecting) {
  std::vector<int> accepted;
  while (connecting.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    for (const Beat& beat : first.accept()) {
      accepted.push_back(beat.rank);
      first.send(beat.rank, {});
    }
  }
  return accepted;
}

std::vector<int> connect(Connections& first, const std::string& announcement, Connections& rank,
                         bool answered = true) {
  Beat beat;
  beat.step = 5;
  auto connecting =
      std::async(std::launch::async, [&] { return rank.connect(announcement, beat); });
  std::vector<int> accepted = serve(first, connecting);
  EXPECT_EQ(connecting.get().has_value(), answered);
  return accepted;
}

std::optional<Beat> next_beat(Connections& connections, int rank) {
  while (true) {
    const std::optional<Beat> beat = connections.receive(rank);
    if (beat || !connections.open(rank)) return beat;
    connections.wait(5);
  }
}

TEST(Connections, CarryBeatsBetweenRank0AndOthers) {
  Connections first(0, 3);
  const std::string announcement = first.listen();
  ASSERT_NE(announcement, "");
  Connections second(1, 3), third(2, 3);
  EXPECT_EQ(connect(first, announcement, third), std::vector<int>{2});
  EXPECT_EQ(connect(first, announcement, second), std::vector<int>{1});
  EXPECT_FALSE(first.open(0));
  for (const int step : {1, 2}) {
    Beat beat;
    beat.step = step;
    second.send(0, beat);
    const std::optional<Beat> found = next_beat(first, 1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, step);
    EXPECT_EQ(found->rank, 1);
    EXPECT_FALSE(first.receive(2));
    beat.step = 10 * step;
    first.send(2, beat);
    EXPECT_EQ(next_beat(third, 0).value_or(Beat()).step, 10 * step);
  }
}

TEST(Connections, CloseWithTheOtherEnd) {
  Connections first(0, 2);
  const std::string announcement = first.listen();
  {
    Connections second(1, 2);
    EXPECT_EQ(connect(first, announcement, second), std::vector<int>{1});
    second.send(0, {});
    EXPECT_TRUE(next_beat(first, 1));
  }
  EXPECT_FALSE(next_beat(first, 1));
  EXPECT_FALSE(first.open(1));
  first.send(1, {});  // does nothing
}

// A connection of a rank that has one, of a rank that does not exist, or of another job is closed.
TEST(Connections, AcceptEachRankOnce) {
  Connections first(0, 3);
  const std::string announcement = first.listen();
  Connections second(1, 3), again(1, 3), not_there(3, 3), of_other_job(2, 3);
  EXPECT_EQ(connect(first, announcement, second), std::vector<int>{1});
  EXPECT_TRUE(connect(first, announcement, again, false).empty());
  EXPECT_TRUE(connect(first, announcement, not_there, false).empty());
  std::istringstream words(announcement);
  std::string port, token, rest;
  words >> port >> token;
  std::getline(words, rest);
  EXPECT_TRUE(connect(first, port + " 1" + rest, of_other_job, false).empty());
  EXPECT_TRUE(second.open(0));
  EXPECT_FALSE(of_other_job.open(0));
}

TEST(Connections, NobodyListens) {
  Connections second(1, 2);
  EXPECT_FALSE(second.connect("", {}));
  EXPECT_FALSE(second.open(0));
}

TEST(Connections, WaitsUntilSomethingHappens) {
  Connections first(0, 2);
  EXPECT_TRUE(first.wait(0.001).none);
  first.wake();
  first.wake();
  EXPECT_TRUE(first.wait(5).woken);
  EXPECT_TRUE(first.wait(0.001).none);
  const std::string announcement = first.listen();
  Connections second(1, 2);
  auto connecting =
      std::async(std::launch::async, [&] { return second.connect(announcement, {}); });
  EXPECT_TRUE(first.wait(5).connecting);
  serve(first, connecting);
  EXPECT_TRUE(connecting.get());
  second.send(0, {});
  EXPECT_EQ(first.wait(5).readable, std::vector<int>{1});
  EXPECT_TRUE(first.receive(1));
  EXPECT_TRUE(first.wait(0.001).none);
}

void accept_all(Connections& first, int count) {
  for (int accepted = static_cast<int>(first.accept().size()); accepted < count;) {
    first.wait(1);
    accepted += static_cast<int>(first.accept().size());
  }
}

// tests/bench/heartbeat measures what that takes.
TEST(Connections, TellWhichOfManyRanksHasSent) {
  raise_max_open_files();
  const int count = static_cast<int>(std::min<std::int64_t>(max_open_files() / 3, 2000));
  Connections first(0, count + 1);
  test::ManyRanks ranks(first.listen());
  for (int connected = 0; connected < count; connected += 100) {
    const int more = std::min(100, count - connected);
    ranks.connect(more);
    accept_all(first, more);
  }
  for (int i = 0; i < 1000; ++i) {
    const int rank = 1 + 7 * i % count;
    ranks.send(rank);
    ASSERT_EQ(first.wait(5).readable, std::vector<int>{rank});
    ASSERT_TRUE(first.receive(rank));
    ASSERT_FALSE(first.receive(rank));
  }
}

TEST(Connections, LeaveFilesToOthers) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = Connections::other_files + 20;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  Connections first(0, 100);
  test::ManyRanks ranks(first.listen());
  ranks.connect(20);
  accept_all(first, 20);
  ranks.connect(5);
  for (int rank = 21; rank <= 25; ++rank) {
    while (ranks.open(rank) && !ranks.receive(rank)) {
      EXPECT_TRUE(first.accept().empty());
    }
    EXPECT_FALSE(ranks.open(rank));
  }
  EXPECT_TRUE(first.wait(0.01).none) << "does not try again for ever";
  ranks.send(20);
  EXPECT_EQ(first.wait(5).readable, std::vector<int>{20});
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace reelmesh::comm

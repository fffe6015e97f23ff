#include "comm/task_counter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace reelmesh::comm {
namespace {

TEST(TaskCounter, CountsEachQueue) {
  TaskCounter counter(1);
  EXPECT_EQ(counter.take(7), 0);
  EXPECT_EQ(counter.take(7), 1);
  EXPECT_EQ(counter.take(-1), 0);
  EXPECT_EQ(counter.take(7), 2);
}

TEST(TaskCounter, ThreadsNeverTakeTheSameTask) {
  constexpr std::size_t threads = 4, tasks_each = 500;
  TaskCounter counter(1);
  std::vector<std::vector<std::int64_t>> taken(threads);
  std::vector<std::thread> running;
  for (std::vector<std::int64_t>& mine : taken) {
    running.emplace_back([&counter, &mine] {
      for (std::size_t i = 0; i < tasks_each; ++i) mine.push_back(counter.take(0));
    });
  }
  for (std::thread& thread : running) thread.join();
  std::vector<std::int64_t> all;
  for (const auto& mine : taken) all.insert(all.end(), mine.begin(), mine.end());
  std::ranges::sort(all);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<std::int64_t>(i));
  EXPECT_EQ(all.size(), threads * tasks_each);
}

TEST(TaskCounter, CountsARepeatedRequestOnce) {
  TaskCounter counter(3);
  EXPECT_FALSE(counter.receive(2, {})) << "a message without a request has no answer";
  EXPECT_EQ(counter.answer(2).number, 0);
  const TaskMessage request{1, 7, 0};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(counter.receive(2, request));
    EXPECT_EQ(counter.answer(2).number, 1);
    EXPECT_EQ(counter.answer(2).taken, 0);
  }
  EXPECT_TRUE(counter.receive(1, request)) << "another rank has numbers of its own";
  EXPECT_EQ(counter.answer(1).taken, 1);
  EXPECT_TRUE(counter.receive(2, {2, 7, 0}));
  EXPECT_EQ(counter.answer(2).number, 2);
  EXPECT_EQ(counter.answer(2).taken, 2);
  EXPECT_EQ(counter.take(7), 3);
}

TEST(TaskRequests, IsPendingUntilItsAnswer) {
  TaskRequests requests;
  EXPECT_EQ(requests.pending().number, 0);
  for (const std::int64_t number : {1, 2}) {
    requests.begin(7);
    for (int i = 0; i < 2; ++i) {  // repeated, as a message may get lost
      EXPECT_EQ(requests.pending().number, number);
      EXPECT_EQ(requests.pending().queue, 7);
      requests.receive({number - 1, 7, 100});  // to the request before
    }
    requests.receive({number, 7, 10 * number});
    EXPECT_EQ(requests.pending().number, 0);
    requests.receive({number, 7, 100});  // a repeated answer changes nothing
    EXPECT_EQ(requests.wait(), 10 * number);
  }
}

// Every second message gets lost, in both directions.
TEST(TaskRequests, TasksOverAnUnreliableConnection) {
  constexpr std::int64_t tasks = 100;
  TaskCounter counter(2);
  TaskRequests requests;
  std::atomic<bool> done{false};
  std::thread connection([&] {
    for (int round = 0; !done; ++round) {
      if (round % 2 == 0) counter.receive(1, requests.pending());
      if (round % 4 < 2) requests.receive(counter.answer(1));
    }
  });
  for (std::int64_t i = 0; i < tasks; ++i) {
    requests.begin(0);
    EXPECT_EQ(requests.wait(), i);
  }
  done = true;
  connection.join();
  EXPECT_EQ(counter.take(0), tasks);
}

}  // namespace
}  // namespace reelmesh::comm

#include "plan/task_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace reelmesh {
namespace {

using ::testing::ElementsAre;

TaskSchedule of(const std::vector<double>& costs, std::size_t groups) {
  return longest_first(costs.size(), groups,
                       [&](std::size_t task, std::size_t) { return costs[task]; });
}

// Whole numbers from 1 to max.
std::vector<double> random_costs(std::mt19937& dice, std::size_t tasks, unsigned max) {
  std::vector<double> costs;
  for (std::size_t i = 0; i < tasks; ++i) costs.push_back(1 + static_cast<double>(dice() % max));
  return costs;
}

TEST(TaskSchedule, TakesLongestFirstAndKeepsTheOrderOfEqualTasks) {
  const TaskSchedule schedule = of({1, 5, 1, 3, 3, 1}, 2);
  EXPECT_THAT(schedule.order, ElementsAre(1, 3, 4, 0, 2, 5));
  EXPECT_THAT(schedule.group_tasks(0), ElementsAre(1, 0, 2));
  EXPECT_THAT(schedule.group_tasks(1), ElementsAre(3, 4, 5));
  EXPECT_EQ(schedule.end, 7);
  EXPECT_EQ(schedule.turns.back().start, 6);
  EXPECT_EQ(schedule.idle, 0);
}

TEST(TaskSchedule, OfFewerTasksThanGroupsLeavesGroupsIdle) {
  const TaskSchedule schedule = of({2, 2}, 4);
  EXPECT_EQ(schedule.end, 2);
  EXPECT_EQ(schedule.idle, 0.5);
  EXPECT_TRUE(schedule.group_tasks(3).empty());
  EXPECT_EQ(of({}, 3).end, 0);
}

TEST(TaskSchedule, GivesFasterGroupsMore) {
  const TaskSchedule schedule =
      longest_first(9, 2, [](std::size_t, std::size_t group) { return group == 0 ? 1.0 : 2.0; });
  EXPECT_EQ(schedule.group_tasks(0).size(), 6U);
  EXPECT_EQ(schedule.end, 6);
}

// Graham's bound for any list: when the last task starts, no group is free.
TEST(TaskSchedule, EndsWithinTheBoundOfListScheduling) {
  std::mt19937 dice(3);
  for (int round = 0; round < 200; ++round) {
    const std::size_t tasks = 1 + dice() % 20, groups = 1 + dice() % 6;
    const std::vector<double> costs = random_costs(dice, tasks, 100);
    const double sum = std::accumulate(costs.begin(), costs.end(), 0.0);
    const double longest = std::ranges::max(costs), m = static_cast<double>(groups);
    const TaskSchedule schedule = of(costs, groups);
    EXPECT_GE(schedule.end, std::max(sum / m, longest) - 1e-9);
    EXPECT_LE(schedule.end, sum / m + longest * (1 - 1 / m) + 1e-9);
    for (std::size_t group = 0; group < groups; ++group) {
      double end = 0;
      for (const std::size_t task : schedule.group_tasks(group)) end += costs[task];
      EXPECT_LE(end, schedule.end);
    }
  }
}

TEST(Queues, GiveEachTaskToOneOfItsGroups) {
  for (const std::size_t groups : {1, 2, 16, 17, 31, 33, 64, 100}) {
    const Queues queues(groups);
    EXPECT_EQ(queues.count(), (groups + 15) / 16);
    std::vector<int> taken(500, 0);
    for (std::size_t group = 0; group < groups; ++group) {
      for (std::size_t turn = 0;; ++turn) {
        const std::size_t task =
            queues.task(queues.of_group(group), queues.position_by_turns(group, turn));
        if (task >= taken.size()) break;
        ++taken[task];
        EXPECT_THAT(queues.groups_of_task(task), ::testing::Contains(group));
      }
    }
    EXPECT_THAT(taken, ::testing::Each(1)) << groups;
    for (const std::size_t task : {0, 7, 499}) {
      EXPECT_LE(queues.groups_of_task(task).size(), 16U);
    }
  }
}

}  // namespace
}  // namespace reelmesh

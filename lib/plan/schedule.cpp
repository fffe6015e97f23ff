#include "plan/schedule.hpp"

#include <algorithm>
#include <numeric>

namespace reelmesh {

std::vector<std::size_t> TaskSchedule::tasks_of(std::size_t group) const {
  std::vector<std::size_t> tasks;
  for (const Turn& turn : turns) {
    if (turn.group == group) tasks.push_back(turn.task);
  }
  return tasks;
}

TaskSchedule longest_first(std::size_t tasks, std::size_t groups,
                           const std::function<double(std::size_t task, std::size_t group)>& cost) {
  std::vector<double> longest(tasks, 0);  // over the groups
  for (std::size_t task = 0; task < tasks; ++task) {
    for (std::size_t group = 0; group < groups; ++group) {
      longest[task] = std::max(longest[task], cost(task, group));
    }
  }
  std::vector<std::size_t> order(tasks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t task) { return longest[task]; });
  TaskSchedule schedule;
  std::vector<double> free(groups, 0);  // when each group is free
  double busy = 0;
  for (const std::size_t task : order) {
    const auto first = std::ranges::min_element(free);
    const auto group = static_cast<std::size_t>(first - free.begin());
    const double start = *first;
    *first += cost(task, group);
    busy += *first - start;
    schedule.turns.push_back({task, group, start, *first});
    schedule.end = std::max(schedule.end, *first);
  }
  if (schedule.end > 0) {
    schedule.idle = 1 - busy / (schedule.end * static_cast<double>(groups));
  }
  return schedule;
}

}  // namespace reelmesh

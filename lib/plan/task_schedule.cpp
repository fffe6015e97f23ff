#include "plan/task_schedule.hpp"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

namespace reelmesh {

std::vector<std::size_t> TaskSchedule::group_tasks(std::size_t group) const {
  std::vector<std::size_t> tasks;
  for (const Turn& turn : turns) {
    if (turn.group == group) tasks.push_back(turn.task);
  }
  return tasks;
}

TaskSchedule longest_first(std::size_t tasks, std::size_t groups, const TaskCost& cost) {
  TaskSchedule schedule;
  std::vector<std::size_t>& order = schedule.order;
  order.resize(tasks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t task) { return cost(task, 0); });
  using Free = std::pair<double, std::size_t>;  // when a group is free, and which
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
  for (std::size_t group = 0; group < groups; ++group) free.emplace(0.0, group);
  double busy = 0;
  for (const std::size_t task : order) {
    const auto [start, group] = free.top();
    free.pop();
    const double end = start + cost(task, group);
    free.emplace(end, group);
    busy += end - start;
    schedule.turns.push_back({task, group, start, end});
    schedule.end = std::max(schedule.end, end);
  }
  if (schedule.end > 0) {
    schedule.idle = 1 - busy / (schedule.end * static_cast<double>(groups));
  }
  return schedule;
}

std::vector<std::size_t> Queues::groups_of_task(std::size_t task) const {
  std::vector<std::size_t> groups;
  for (std::size_t group = task % count_; group < groups_; group += count_) groups.push_back(group);
  return groups;
}

std::size_t end_of_queue(std::size_t first, std::size_t tasks, std::int64_t queue_bytes,
                         const std::function<std::int64_t(std::size_t task)>& bytes_of) {
  std::int64_t bytes = 0;
  std::size_t end = first;
  for (; end < tasks; ++end) {
    bytes += bytes_of(end);
    if (end > first && bytes > queue_bytes) break;
  }
  return end;
}

std::size_t Queues::position_by_turns(std::size_t group, std::size_t turn) const {
  return group / count_ + turn * groups_of_task(group).size();
}

}  // namespace reelmesh

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

TaskSchedule longest_first(std::size_t tasks, std::size_t groups, const TaskCost& cost,
                           std::size_t helpers) {
  TaskSchedule schedule;
  std::vector<std::size_t>& order = schedule.order;
  order.resize(tasks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t task) { return cost(task, 0); });
  std::vector<HelperRule> rules;
  for (std::size_t helper = groups - helpers; helper < groups; ++helper) {
    rules.emplace_back(order, groups, helper, cost);
  }
  using Free = std::pair<double, std::size_t>;  // when a group is free, and which
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
  for (std::size_t group = 0; group < groups; ++group) free.emplace(0.0, group);
  double busy = 0;
  std::vector<double> ends(groups, 0);
  for (std::size_t front = 0, back = 0; front + back < tasks;) {
    const auto [start, group] = free.top();
    free.pop();
    const bool slower = group >= groups - helpers && rules[group - (groups - helpers)].slower();
    if (slower) {
      std::vector<double> left = ends;
      for (double& time : left) time = std::max(0.0, time - start);
      if (!rules[group - (groups - helpers)].takes(front, back, left)) continue;
    }
    const std::size_t task = order[slower ? tasks - 1 - back++ : front++];
    const double end = start + cost(task, group);
    free.emplace(end, group);
    ends[group] = end;
    busy += end - start;
    schedule.turns.push_back({task, group, start, end});
    schedule.end = std::max(schedule.end, end);
  }
  if (schedule.end > 0) {
    schedule.idle = 1 - busy / (schedule.end * static_cast<double>(groups));
  }
  return schedule;
}

HelperRule::HelperRule(const std::vector<std::size_t>& order, std::size_t groups,
                       std::size_t helper, const TaskCost& cost)
    : helper_(helper), others_{0} {
  for (std::size_t group = 0; group < groups; ++group) {
    std::vector<double> costs;
    for (const std::size_t task : order) costs.push_back(cost(task, group));
    if (group == helper) own_ = costs;
    const auto same = std::ranges::find(costs_, costs);
    cost_index_.push_back(static_cast<std::size_t>(same - costs_.begin()));
    if (same == costs_.end()) costs_.push_back(std::move(costs));
  }
  slower_ = !order.empty() && own_.front() > costs_.front().front();
  for (std::size_t position = 0; position < order.size(); ++position) {
    double rate = 0;  // tasks like this one that the others make in a unit of time
    for (std::size_t group = 0; group < groups; ++group) {
      if (group != helper) rate += 1 / costs_[cost_index_[group]][position];
    }
    others_.push_back(others_.back() + 1 / rate);
  }
}

bool HelperRule::takes(std::size_t front, std::size_t back, std::vector<double> busy,
                       double own_factor, double others_factor) const {
  if (front + back >= tasks()) return false;
  const double own = own_factor * own_time(back) / others_factor;
  if (own <= others_time(front, tasks() - back)) return true;
  // The others take all that are left, each by the group that completes it first.
  double end = 0;
  for (std::size_t position = front; position < tasks() - back; ++position) {
    std::size_t first = helper_;
    double its_end = 0;
    for (std::size_t group = 0; group < busy.size(); ++group) {
      if (group == helper_) continue;
      const double time = busy[group] + costs_[cost_index_[group]][position];
      if (first != helper_ && time >= its_end) continue;
      first = group;
      its_end = time;
    }
    if (first == helper_) return true;  // there are no others
    busy[first] = its_end;
    end = std::max(end, its_end);
  }
  return own <= end;
}

bool HelperRule::takes(std::size_t front, std::size_t back, const std::vector<double>& busy) const {
  return takes(front, back, busy, 1, 1);
}

bool HelperRule::takes(std::size_t front, std::size_t back, double own_factor,
                       double others_factor) const {
  const std::size_t groups = cost_index_.size();
  std::vector<double> busy(groups, 0);
  if (front >= tasks()) return false;
  // Groups of equal speed are spread over the time of one task.
  std::vector<std::size_t> count(costs_.size(), 0), seen(costs_.size(), 0);
  for (std::size_t group = 0; group < groups; ++group) {
    if (group != helper_) ++count[cost_index_[group]];
  }
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t kind = cost_index_[group];
    if (group == helper_) continue;
    busy[group] = costs_[kind][front] * static_cast<double>(++seen[kind]) /
                  static_cast<double>(count[kind] + 1);
  }
  return takes(front, back, std::move(busy), own_factor, others_factor);
}

std::vector<std::size_t> Queues::groups_of_task(std::size_t task) const {
  std::vector<std::size_t> groups;
  for (std::size_t group = task % count_; group < groups_; group += count_) groups.push_back(group);
  return groups;
}

std::size_t Queues::position_by_turns(std::size_t group, std::size_t turn) const {
  return group / count_ + turn * groups_of_task(group).size();
}

}  // namespace reelmesh

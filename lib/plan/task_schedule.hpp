#pragma once
// Which group of ranks makes which clips, and when.
#include <functional>
#include <vector>

namespace reelmesh {

/// The predicted time of a task on a group, in any unit.
using TaskCost = std::function<double(std::size_t task, std::size_t group)>;

/// Tasks on groups that work side by side; a group that is free takes the next task.
struct TaskSchedule {
  struct Turn {
    std::size_t task = 0, group = 0;
    double start = 0, end = 0;
  };
  std::vector<std::size_t> order;  ///< the tasks, the longest first
  std::vector<Turn> turns;         ///< in the order in which tasks are taken
  double end = 0;                  ///< when the last task ends
  double idle = 0;                 ///< mean share of that time in which a group has nothing to do

  /// The tasks of a group, in their order.
  std::vector<std::size_t> group_tasks(std::size_t group) const;
};

/// The schedule of list scheduling with the longest tasks first (R. L. Graham, 1969), whose end is
/// at most 4/3 of the earliest possible one on equal groups. "Longest" is on group 0;
/// tasks of equal length keep their order. The last `helpers` groups follow HelperRule. Costs that
/// turn out otherwise change who takes which task, but not the order in which they are taken.
TaskSchedule longest_first(std::size_t tasks, std::size_t groups, const TaskCost& cost,
                           std::size_t helpers = 0);

/// When a helper, a group that may differ from the others in size, takes a task. A helper that is
/// slower than the others takes the shortest remaining task, and only if it completes that task
/// before the other groups complete all remaining ones: a slow group must not finish last.
class HelperRule {
 public:
  /// order: the tasks, the longest first.
  HelperRule(const std::vector<std::size_t>& order, std::size_t groups, std::size_t helper,
             const TaskCost& cost);

  /// Whether the helper is slower than group 0; otherwise it is like other groups.
  bool slower() const { return slower_; }
  /// front, back: how many tasks have been taken from the two ends of the order. busy: for how long
  /// each group is still busy (the helper's own value does not count).
  bool takes(std::size_t front, std::size_t back, const std::vector<double>& busy) const;
  /// The same if the progress of the other groups is unknown. Assumes that groups of equal speed
  /// end their current tasks at equal intervals within the time of the next task. own_factor,
  /// others_factor: measured times divided by predicted ones.
  bool takes(std::size_t front, std::size_t back, double own_factor = 1,
             double others_factor = 1) const;
  /// Predicted time of the task that is taken from the back after `back` others.
  double own_time(std::size_t back) const { return own_.at(own_.size() - 1 - back); }
  /// Predicted time in which the other groups together make tasks [first, end) of the order.
  double others_time(std::size_t first, std::size_t end) const {
    return others_.at(end) - others_.at(first);
  }
  std::size_t tasks() const { return own_.size(); }

 private:
  bool takes(std::size_t front, std::size_t back, std::vector<double> busy, double own_factor,
             double others_factor) const;

  std::size_t helper_;
  bool slower_;
  std::vector<double> own_;                 ///< by position in the order
  std::vector<double> others_;              ///< of all tasks before a position
  std::vector<std::vector<double>> costs_;  ///< by position; groups with equal costs share them
  std::vector<std::size_t> cost_index_;     ///< for each group its index in costs_
};

/// Groups that take tasks from common queues. With few queues every group may take nearly every
/// task, so what a task needs (text embeddings) has to be sent to all of them; with many, the load
/// is balanced only within each queue. Queue q has the tasks and the groups whose numbers are q
/// modulo the number of queues.
class Queues {
 public:
  static constexpr std::size_t max_groups = 16;  ///< per queue
  explicit Queues(std::size_t groups)
      : groups_(groups), count_((groups + max_groups - 1) / max_groups) {}

  std::size_t count() const { return count_; }
  std::size_t of_group(std::size_t group) const { return group % count_; }
  std::vector<std::size_t> groups_of_task(std::size_t task) const;
  /// The task with this position in a queue.
  std::size_t task(std::size_t queue, std::size_t position) const {
    return queue + position * count_;
  }
  /// The position in its queue of a group's next task, if groups take turns instead of taking a
  /// task when they are free. turn: how many it has taken.
  std::size_t position_by_turns(std::size_t group, std::size_t turn) const;

 private:
  std::size_t groups_, count_;
};

}  // namespace reelmesh

#pragma once
// Which group of ranks makes which clips, and when.
#include <functional>
#include <vector>

namespace reelmesh {

/// Tasks on groups that work side by side; a group that is free takes the next task.
struct TaskSchedule {
  struct Turn {
    std::size_t task = 0, group = 0;
    double start = 0, end = 0;
  };
  std::vector<Turn> turns;  ///< in the order in which tasks are taken
  double end = 0;           ///< when the last task ends
  double idle = 0;          ///< mean share of that time in which a group has nothing to do

  std::vector<std::size_t> order() const;  ///< the tasks of `turns`
  /// The tasks of a group, in their order.
  std::vector<std::size_t> tasks_of(std::size_t group) const;
};

/// The schedule of list scheduling with the longest tasks first (R. L. Graham, 1969), whose end is
/// at most 4/3 of the earliest possible one on equal groups. "Longest" is on group 0;
/// tasks of equal length keep their order. cost(task, group): predicted time, in any unit. Costs
/// that turn out otherwise change who takes which task, but not the order in which they are taken.
TaskSchedule longest_first(std::size_t tasks, std::size_t groups,
                           const std::function<double(std::size_t task, std::size_t group)>& cost);

/// Groups that take tasks from common queues. With few queues every group may take nearly every
/// task, so what a task needs (text embeddings) has to be sent to all of them; with many, groups
/// cannot relieve each other. Queue q has the tasks and the groups whose numbers are q modulo the
/// number of queues.
class Queues {
 public:
  static constexpr std::size_t max_groups = 16;  ///< per queue
  explicit Queues(std::size_t groups)
      : groups_(groups), count_((groups + max_groups - 1) / max_groups) {}

  std::size_t count() const { return count_; }
  std::size_t of_group(std::size_t group) const { return group % count_; }
  std::vector<std::size_t> groups_of_task(std::size_t task) const;
  /// The task with this place in a queue.
  std::size_t task(std::size_t queue, std::size_t place) const { return queue + place * count_; }
  /// The place in its queue of a group's next task, if groups take turns instead of taking a task
  /// when they are free. turn: how many it has taken.
  std::size_t place_by_turns(std::size_t group, std::size_t turn) const;

 private:
  std::size_t groups_, count_;
};

}  // namespace reelmesh

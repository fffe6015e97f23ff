#pragma once
// Which group of ranks makes which clips, and when.
#include <cstdint>
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
/// tasks of equal length keep their order. Costs that turn out otherwise change who takes which
/// task, but not the order in which they are taken.
TaskSchedule longest_first(std::size_t tasks, std::size_t groups, const TaskCost& cost);

/// Groups that take tasks from common queues. With few queues every group may take nearly every
/// task, so what a task needs (text embeddings) has to be sent to all of them; with many, the load
/// is balanced only within each queue. Queue q has the tasks and the groups whose numbers are q
/// modulo the number of queues.
class Queues {
 public:
  /// most: groups of a queue.
  explicit Queues(std::size_t groups, std::size_t most = 16)
      : groups_(groups), count_((groups + most - 1) / most) {}

  std::size_t groups() const { return groups_; }
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

/// Batches of a replica in split mode that are on their way to the decoding ranks at a time.
inline constexpr std::size_t max_pending_batches = 2;

/// The end of the tasks from `first` on that fit a queue of so many bytes together; at least one.
std::size_t end_of_queue(std::size_t first, std::size_t tasks, std::int64_t queue_bytes,
                         const std::function<std::int64_t(std::size_t task)>& bytes_of);

}  // namespace reelmesh

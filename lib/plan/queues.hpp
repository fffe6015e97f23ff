#pragma once
// Which group of ranks makes which tasks, and in which order: shared by the engine
// (lib/pipeline) and the clock (forecast/simulation.hpp).
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace reelmesh {

/// Groups that take tasks from common queues. With few queues every group may take nearly every
/// task, so what a task needs (text embeddings) has to be sent to all of them; with many, the load
/// is balanced only within each queue. Queue q has the tasks and the groups whose numbers are q
/// modulo the number of queues.
class Queues {
 public:
  /// max: groups of a queue.
  explicit Queues(std::size_t groups, std::size_t max = 16)
      : groups_(groups), count_((groups + max - 1) / max) {}

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

/// In phased mode: a range of batches that the replicas make without waiting for one another.
struct Round {
  std::size_t first = 0, end = 0;
  std::size_t encoded = 0;   ///< the texts of the batches from `first` up to this one come first;
                             ///< `first`: they are encoded
  bool begins_tail = false;  ///< whether the replicas of the last batches take over
};

/// The rounds of phased mode: as many texts are encoded as the queue holds, and a round ends with
/// them, or where the last `tail` batches begin.
class Rounds {
 public:
  Rounds(std::size_t batches, std::size_t tail, std::int64_t queue_bytes,
         std::function<std::int64_t(std::size_t batch)> bytes_of)
      : batches_(batches),
        tail_(batches - tail),
        queue_bytes_(queue_bytes),
        bytes_of_(std::move(bytes_of)) {}
  /// None after the last.
  std::optional<Round> next();

 private:
  std::size_t batches_, tail_;  ///< tail_: the first of the last batches
  std::int64_t queue_bytes_;
  std::function<std::int64_t(std::size_t batch)> bytes_of_;
  std::size_t made_ = 0, encoded_ = 0;
};

}  // namespace reelmesh

#include "comm/watchdog.hpp"

#include "comm/end_guard.hpp"
#include "comm/waiting.hpp"

namespace reelmesh::comm {

Watchdog::Watchdog(const Group& world, const WatchdogSettings& settings)
    : rank_(world.rank()),
      guard_seconds_(rank_ == 0 && world.size() > 1 ? 3 * settings.timeout : 0),
      counter_(world.size()),
      heartbeat_(world, settings, hooks()) {}

// The heartbeat's thread calls them.
HeartbeatHooks Watchdog::hooks() {
  if (rank_ > 0) {
    return {.next_task = [this](int) { return requests_.pending(); },
            .task_received =
                [this](int, const TaskMessage& answer) {
                  requests_.receive(answer);
                  return false;
                },
            .observed = {}};
  }
  return {.next_task = [this](int rank) { return counter_.answer(rank); },
          .task_received = [this](int rank,
                                  const TaskMessage& task) { return counter_.receive(rank, task); },
          .observed = [this](std::span<const Peer> ranks,
                             double now) { activities_.publish(activities_of(ranks, now)); }};
}

void Watchdog::end(bool guarded) {
  if (guarded && heartbeat_.running() && guard_seconds_ > 0) guard_end(guard_seconds_);
  heartbeat_.end();
}

std::int64_t Watchdog::take(int queue) {
  expect(has_queues(), "a rank that cannot reach rank 0 takes a task");
  if (rank_ == 0) return counter_.take(queue);
  const Waiting waiting("take");
  requests_.begin(queue);
  heartbeat_.send_now();
  return requests_.wait();
}

}  // namespace reelmesh::comm

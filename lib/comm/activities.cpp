#include "comm/activities.hpp"

#include <utility>

#include "comm/peers.hpp"

namespace reelmesh::comm {

std::vector<Activity> activities_of(std::span<const Peer> peers, double now) {
  std::vector<Activity> activities;
  for (std::size_t r = 0; r < peers.size(); ++r) {
    if (!peers[r].connected) continue;
    const Beat& beat = peers[r].last;
    activities.push_back({static_cast<int>(r), beat.process, beat.host.string(),
                          beat.stage.string(), beat.waiting.string(), beat.clip, beat.step,
                          beat.layer, r == 0 ? 0 : now - peers[r].heard, beat.memory,
                          beat.clip_steps});
  }
  return activities;
}

void Activities::publish(std::vector<Activity> activities) {
  const std::lock_guard lock(mutex_);
  last_ = std::move(activities);
}

std::vector<Activity> Activities::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace reelmesh::comm

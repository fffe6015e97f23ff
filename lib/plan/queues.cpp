#include "plan/queues.hpp"

#include <algorithm>

namespace reelmesh {

std::vector<std::size_t> Queues::groups_of_task(std::size_t task) const {
  std::vector<std::size_t> groups;
  for (std::size_t group = task % count_; group < groups_; group += count_) groups.push_back(group);
  return groups;
}

std::size_t Queues::position_by_turns(std::size_t group, std::size_t turn) const {
  return group / count_ + turn * groups_of_task(group).size();
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

std::optional<Round> Rounds::next() {
  if (made_ == batches_) return std::nullopt;
  Round round{.first = made_, .encoded = made_, .begins_tail = made_ == tail_};
  if (made_ == encoded_) {
    round.encoded = encoded_ = end_of_queue(made_, batches_, queue_bytes_, bytes_of_);
  }
  made_ = round.end = made_ < tail_ ? std::min(encoded_, tail_) : encoded_;
  return round;
}

}  // namespace reelmesh

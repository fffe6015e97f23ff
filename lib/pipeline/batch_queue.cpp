#include "pipeline/batch_queue.hpp"

#include <algorithm>
#include <array>

#include "base/stop.hpp"
#include "base/trace.hpp"

namespace reelmesh::pipeline {

std::optional<std::size_t> BatchQueue::next_together(std::size_t batches) {
  const std::size_t queue = queues_.of_group(replica_);
  auto position = static_cast<std::int64_t>(queues_.position_by_turns(replica_, turn_++));
  if (queues_.groups() > 1 && counter_ != nullptr && counter_->has_queues()) {
    const int number = number_ + static_cast<int>(queue);
    position = group_.rank() == 0 ? counter_->take(number) : 0;
  }
  std::array<std::int64_t, 2> votes{stop::leaving() ? 1 : 0, position};
  group_.max(votes);
  stopped_ = votes[0] > 0;
  if (stopped_) return std::nullopt;
  const std::size_t batch = queues_.task(queue, static_cast<std::size_t>(votes[1]));
  return batch < batches ? std::optional(batch) : std::nullopt;
}

PacedVote::PacedVote(const comm::Group& group) : group_(group), last_(trace::now_ns()) {}

bool PacedVote::stop_together() {
  if (stopped_ || --left_ > 0) return stopped_;
  const std::int64_t now = trace::now_ns();
  std::array<std::int64_t, 2> votes{stop::leaving() ? 1 : 0, now - last_};
  group_.max(votes);
  constexpr std::int64_t interval_ns = 5'000'000'000;
  const std::int64_t piece = std::max<std::int64_t>(votes[1] / interval_, 1);
  left_ = interval_ =
      std::clamp<std::int64_t>(interval_ns / piece, group_.size(), std::int64_t{1000});
  last_ = now;
  return stopped_ = votes[0] > 0;
}

}  // namespace reelmesh::pipeline

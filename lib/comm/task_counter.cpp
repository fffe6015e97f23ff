#include "comm/task_counter.hpp"

namespace reelmesh::comm {

std::int64_t TaskCounter::take(int queue) {
  const std::lock_guard lock(mutex_);
  return queues_[queue]++;
}

bool TaskCounter::receive(int rank, const TaskMessage& request) {
  if (request.number <= 0) return false;
  TaskMessage& last = answers_.at(static_cast<std::size_t>(rank));
  if (request.number != last.number) {
    last = request;
    last.taken = take(request.queue);
  }
  return true;
}

void TaskRequests::begin(int queue) {
  const std::lock_guard lock(mutex_);
  request_ = {request_.number + 1, queue, 0};
}

std::int64_t TaskRequests::wait() {
  std::unique_lock lock(mutex_);
  answered_.wait(lock, [this] { return !waits(); });
  return answer_.taken;
}

TaskMessage TaskRequests::pending() const {
  const std::lock_guard lock(mutex_);
  return waits() ? request_ : TaskMessage();
}

void TaskRequests::receive(const TaskMessage& answer) {
  {
    const std::lock_guard lock(mutex_);
    if (!waits() || answer.number != request_.number) return;
    answer_ = answer;
  }
  answered_.notify_one();
}

}  // namespace reelmesh::comm

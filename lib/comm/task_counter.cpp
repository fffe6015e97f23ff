#include "comm/task_counter.hpp"

namespace reelmesh::comm {

Taken TaskCounter::take(int queue, End end) {
  const std::lock_guard lock(mutex_);
  Taken& taken = queues_[queue];
  const Taken before = taken;
  if (end == End::front) ++taken.front;
  if (end == End::back) ++taken.back;
  return before;
}

bool TaskCounter::receive(int rank, const TaskMessage& request) {
  if (request.number <= 0) return false;
  TaskMessage& last = answers_.at(static_cast<std::size_t>(rank));
  if (request.number != last.number) {
    last = request;
    last.taken = take(request.queue, request.end);
  }
  return true;
}

void TaskRequests::begin(int queue, End end) {
  const std::lock_guard lock(mutex_);
  request_ = {request_.number + 1, queue, end, {}};
}

Taken TaskRequests::wait() {
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

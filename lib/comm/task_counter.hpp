#pragma once
// Queues of tasks that all ranks take from. Rank 0 counts; the others ask it by messages, of which
// each may get lost, so requests and answers are repeated.
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace reelmesh::comm {

/// A request of a rank, or rank 0's answer to it.
struct TaskMessage {
  std::int64_t number = 0;  ///< of the request: from 1, one more for each; 0: there is none
  std::int32_t queue = 0;
  std::int64_t taken = 0;  ///< in an answer: tasks that had been taken before
};

/// On rank 0: counts the tasks that are taken, by itself and by others.
class TaskCounter {
 public:
  explicit TaskCounter(int ranks) : answers_(static_cast<std::size_t>(ranks)) {}

  /// → how many had been taken before. Any thread.
  std::int64_t take(int queue);

  /// The last two are called by one thread. Receives a message of a rank, with or without a
  /// request. A request that is repeated is counted once. → whether there is an answer to send.
  bool receive(int rank, const TaskMessage& request);
  /// To the last request of this rank.
  const TaskMessage& answer(int rank) const { return answers_.at(static_cast<std::size_t>(rank)); }

 private:
  std::mutex mutex_;
  std::map<int, std::int64_t> queues_;  // how many have been taken
  std::vector<TaskMessage> answers_;    // by rank
};

/// On another rank: its requests to rank 0, one at a time.
class TaskRequests {
 public:
  /// Begins a request, and waits for its answer: called by one thread, in turns.
  void begin(int queue);
  std::int64_t wait();

  /// Called by the thread that exchanges messages with rank 0. The request that is to be sent;
  /// number 0 if all are answered.
  TaskMessage pending() const;
  /// Receives a message of rank 0, with or without an answer to the pending request.
  void receive(const TaskMessage& answer);

 private:
  bool waits() const { return answer_.number != request_.number; }

  mutable std::mutex mutex_;
  std::condition_variable answered_;
  TaskMessage request_, answer_;  // the last ones
};

}  // namespace reelmesh::comm

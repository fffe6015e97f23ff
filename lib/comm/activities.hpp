#pragma once
// What all ranks do, for status.json.
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/memory_in_use.hpp"

namespace reelmesh::comm {

struct Peer;

/// What a rank did when rank 0 last heard from it.
struct Activity {
  int rank = 0, process = 0;
  std::string host, stage, waiting;  ///< waiting: the call in which it waits for others, or empty
  int clip = -1, step = -1, layer = -1;  ///< −1: none
  double heard_ago = 0;                  ///< seconds
  MemoryInUse memory;
  std::int64_t clip_steps = 0;  ///< that it has computed for its replica so far
};

/// Of rank 0 and of the ranks that it has heard from. peers: of all ranks, by rank; now: in
/// seconds.
std::vector<Activity> activities_of(std::span<const Peer> peers, double now);

/// Activities that one thread publishes, and others read.
class Activities {
 public:
  void publish(std::vector<Activity> activities);
  /// The last ones; none before the first.
  std::vector<Activity> last() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Activity> last_;
};

}  // namespace reelmesh::comm

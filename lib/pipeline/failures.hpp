#pragma once
// Clips that fail alone: their numbers are not finite, while other clips of the job are made.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group.hpp"

namespace reelmesh::pipeline {

struct ClipFailure {
  int clip = 0;
  std::string reason;
};

/// The lowest rank of a group on which something was found, by a maximum over the group: each rank
/// contributes vote_if(), and found_on() of the maximum is that rank, or −1 if no rank has found
/// it.
inline std::int64_t vote_if(bool found, const comm::Group& group) {
  return found ? group.size() - group.rank() : 0;
}
inline int found_on(std::int64_t maximum, const comm::Group& group) {
  return maximum > 0 ? group.size() - static_cast<int>(maximum) : -1;
}

/// Collects the failures that happen on this rank, and reports each as one error message.
class Failures {
 public:
  /// strict: the first failure ends the job (Job::strict).
  explicit Failures(bool strict) : strict_(strict) {}

  /// NaN or infinite values in a tensor of `clip`, found on this rank: reports them. where: "the
  /// text embeddings", "the latents after step 3 of 50". Error(data) instead if strict.
  void add(int clip, std::string_view where);
  /// The failures of all ranks, by clip, on every rank. Collective.
  std::vector<ClipFailure> of_all(const comm::Group& world) const;

 private:
  bool strict_;
  std::vector<ClipFailure> found_;
};

}  // namespace reelmesh::pipeline

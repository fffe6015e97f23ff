#pragma once
// Clips that fail alone: their numbers are not finite, while other clips of the job are made.
#include <string>
#include <string_view>
#include <vector>

#include "comm/group.hpp"
#include "plan/job.hpp"

namespace reelmesh::pipeline {

struct ClipFailure {
  int clip = 0;
  std::string reason;
};

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

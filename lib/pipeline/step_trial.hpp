#pragma once
// Times the first steps of a batch.
#include <algorithm>
#include <vector>

#include "base/trace.hpp"

namespace reelmesh::pipeline {

/// The computed steps of a batch on this rank, until there are enough of them to tell how long a
/// step takes. Steps that a cache leaves out do not count.
class StepTrial {
 public:
  /// The first is left out: its weights and tensors are touched for the first time. A GPU needs the
  /// second to capture its graph.
  static constexpr int steps = 4;

  /// Call it after each step. → whether there are enough; the same on all ranks of the replica.
  bool enough_after_step() {
    const trace::Total now = total();
    if (now.count > last_.count) {
      seconds_.push_back(1e-9 * static_cast<double>(now.duration_ns - last_.duration_ns));
    }
    last_ = now;
    return seconds_.size() == steps;
  }
  /// Of a step, without the first: the median; 0 if there is no other.
  double seconds() const {
    if (seconds_.size() < 2) return 0;
    std::vector<double> sorted(seconds_.begin() + 1, seconds_.end());
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }

 private:
  static trace::Total total() { return trace::recorder().stages[trace::spans::denoise_step.name]; }

  trace::Total last_ = total();
  std::vector<double> seconds_;
};

}  // namespace reelmesh::pipeline

#pragma once
// How long operations of one kind take, from some whose times are known.
#include <initializer_list>
#include <span>
#include <vector>

namespace reelmesh {

/// One operation whose time is known.
struct TimedOperation {
  double flops = 0, bytes = 0, seconds = 0;
};

/// Operations of one kind. Their time is a function of one amount of work, FLOPs + c · bytes, that
/// never falls: so more FLOPs or bytes never take less time (a monotone single-index model;
/// Balabdaoui, Durot and Jankowski, "Least squares estimation in the monotone single index model",
/// Bernoulli 25, 2019). Of a ladder of values, c is that with which the known times, in logarithms,
/// are nearest to growing with the work, and with the steadiest rate. Where they do not grow, as
/// noise or unlike shapes make them, neighbours are pooled (isotonic regression). Between the known
/// ones, time is linear in work: a latency and a bandwidth; above the largest, in proportion to it.
class KnownOperations {
 public:
  KnownOperations() = default;
  KnownOperations(std::vector<TimedOperation> known);  // NOLINT(google-explicit-constructor)
  KnownOperations(std::initializer_list<TimedOperation> known)
      : KnownOperations(std::vector<TimedOperation>(known)) {}

  bool empty() const { return known_.empty(); }
  std::span<const TimedOperation> known() const { return known_; }
  /// Requires !empty(). 0 without work.
  double seconds(double flops, double bytes) const;

 private:
  struct Node {
    double work = 0, seconds = 0;
  };
  std::vector<TimedOperation> known_;
  double flops_of_byte_ = 0;
  std::vector<Node> nodes_;  // both numbers grow
};

}  // namespace reelmesh

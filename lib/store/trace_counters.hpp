#pragma once
#include <array>
#include <vector>

#include "store/trace_rows.hpp"

namespace reelmesh {

/// Samples memory by purpose, bytes sent and waiting clips of this rank. The peak of memory between
/// two samples is recorded, too.
class CounterSampler {
 public:
  explicit CounterSampler(int rank) : rank_(rank) {}
  /// Adds a row for each counter that has changed since its previous row.
  void sample(std::int64_t now_ns);
  std::vector<CounterRow> rows;

 private:
  void add(std::size_t counter, std::int64_t now_ns, std::int64_t value, std::int64_t max);
  int rank_;
  std::array<std::int64_t, trace_counters> last_{};  ///< the value of the previous row
};

}  // namespace reelmesh

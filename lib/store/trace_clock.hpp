#pragma once
// One clock for the times of all ranks.
#include <cstdint>

#include "comm/group.hpp"

namespace reelmesh {

/// Clock (trace::now_ns()) of rank 0 minus this rank's, in ns, from the fastest of 20 round trips;
/// the error is at most half of that round trip. 0 on rank 0. Not recorded as messages. Collective.
std::int64_t clock_offset_ns(const comm::Group& group);

/// The clock of a rank, compared with that of rank 0 at the start and at the end of a job. The
/// offset is assumed to change linearly between the two, by at most 500 ppm, and to be constant
/// before and after.
struct TraceClock {
  std::int64_t start_ns = 0;         ///< this rank's time of the first comparison
  std::int64_t start_offset_ns = 0;  ///< the offset then, to be added to this rank's time
  std::int64_t end_ns = 0;           ///< of the second one; equal to start_ns if there was none
  std::int64_t end_offset_ns = 0;

  /// This rank's time on the clock of rank 0.
  std::int64_t on_first_rank(std::int64_t own_ns) const;
  /// Change of the offset in ns per s.
  std::int64_t drift_ppb() const;
};

}  // namespace reelmesh

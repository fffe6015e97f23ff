#pragma once
// What the job tells when it is done.
#include <string>

#include "base/trace.hpp"
#include "comm/group.hpp"

namespace reelmesh::pipeline {

struct Totals {
  int clips = 0;
  double wall_seconds = 0;
  std::int64_t peak_memory_bytes = 0;         ///< of this rank, on the host
  std::int64_t peak_device_memory_bytes = 0;  ///< of its tensors on a GPU
};

/// Seconds per stage over the ranks that take part in it, seconds per step, rate of arithmetic,
/// bytes sent, peak memory. Collective; the text is on rank 0, empty elsewhere.
std::string closing_report(const comm::Group& world, const trace::Recorder& mine,
                           const Totals& totals);

}  // namespace reelmesh::pipeline

#pragma once
// The summary that is printed at the end of a job.
#include <string>

#include "base/trace.hpp"
#include "comm/group.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh::pipeline {

struct Totals {
  std::int64_t done = 0;      ///< clips that were made, or steps
  const char* unit = "clip";  ///< or "step"
  double wall_seconds = 0;
  std::int64_t peak_memory_bytes = 0;         ///< of this rank's process, on the host
  std::int64_t peak_device_memory_bytes = 0;  ///< of this rank's tensors on a GPU
  MemoryByPurpose memory;                     ///< of tensors where this rank computes
};

/// Seconds per stage (min, average, max over the ranks that take part), seconds per call, FLOP/s,
/// bytes sent, peak memory, and for which purposes. Collective; the text is on rank 0, empty
/// elsewhere.
std::string closing_report(const comm::Group& world, const trace::Recorder& mine,
                           const Totals& totals);

}  // namespace reelmesh::pipeline

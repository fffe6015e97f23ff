#pragma once
// trace.h5: what all ranks did when, on one clock.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "comm/group.hpp"

namespace reelmesh {

/// A row of /ranks.
struct RankRecord {
  std::string host;
  std::string role;    ///< "text", "denoise", "decode", "all"
  std::string device;  ///< "cpu", or a GPU's name
  int threads = 1;
  std::int64_t peak_memory_bytes = 0;         ///< on the host
  std::int64_t peak_device_memory_bytes = 0;  ///< of tensors on a GPU
};

/// What to add to trace::now_ns() of this rank to have the clock of rank 0, from the fastest of
/// some round trips; good to half of that one. 0 on rank 0. Collective.
std::int64_t clock_offset_ns(const comm::Group& group);

/// Writes folder/trace.h5 with the spans of all ranks: /spans, sorted by rank and then start, and
/// /ranks. Time 0 is the start of the earliest span. Collective over `world`; otherwise as
/// write_clip: complete or not there at all, and an earlier file is replaced.
void write_trace(const comm::Group& world, const std::filesystem::path& folder,
                 const RankRecord& mine, const std::vector<trace::Span>& spans);

}  // namespace reelmesh

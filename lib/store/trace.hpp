#pragma once
// trace.h5: the time spans of all ranks on one clock.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "comm/group.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {

/// A row of /ranks.
struct RankRecord {
  std::string host;
  std::string role;    ///< as Roles::of: "text", "text+denoise+decode", "idle"
  std::string device;  ///< "cpu", or a GPU's name
  int threads = 1;
  std::int64_t peak_memory_bytes = 0;          ///< on the host
  std::int64_t peak_device_memory_bytes = 0;   ///< of tensors on a GPU
  MemoryByPurpose host_memory, device_memory;  ///< of tensors
  std::int64_t padded_products = 0;            ///< as trace::Recorder::padded_products
  std::string kernels;                         ///< trace::Recorder::kernels, joined by "; "
};

/// Clock (trace::now_ns()) of rank 0 minus this rank's, in ns, from the fastest of 20 round trips;
/// the error is at most half of that round trip. 0 on rank 0. Collective.
std::int64_t clock_offset_ns(const comm::Group& group);

/// Writes folder/trace.h5: /spans of all ranks, sorted by rank and then start, /ranks, and /memory:
/// for each rank, place and purpose a row. Time 0 is the start of the earliest span. Replaces an
/// existing file; written as by write_pieces, so that it is either complete or absent. Collective
/// over `world`. Error(cannot_create), Error(io).
void write_trace(const comm::Group& world, const std::filesystem::path& folder,
                 const RankRecord& mine, const std::vector<trace::Span>& spans);

}  // namespace reelmesh

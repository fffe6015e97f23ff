#pragma once
// trace.h5: the time spans, messages and counters of all ranks on one clock.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

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
  std::int64_t memory_limit_bytes = 0;         ///< that the plan keeps to; 0: none
  std::int64_t predicted_memory_bytes = 0;     ///< peak by the plan; 0: unknown
  double peak_flops_per_s = 0;                 ///< measured; 0: not measured
  double peak_memory_bytes_per_s = 0;          ///< read and written; measured; 0: not measured
};

/// Writes what trace::recorder() records, while the job runs and at its end.
///
/// At the end of a span of Level::stages, once a second or when it holds 4 MiB, each rank
/// appends its rows to files in folder/trace/, and rank 0 makes trace.h5 from the files of all
/// ranks that exist by then, at intervals of at least 100 times the time that this takes. So little
/// memory is used, and a job that is killed leaves trace.h5. finish_together() writes it anew from
/// all ranks in parallel.
///
/// An error of writing never ends the job: recording stops on this rank, trace.h5 stays as it is,
/// and finish_together() logs one warning.
class TraceWriter {
 public:
  /// Compares the clocks and begins. rank: the present values of this rank's row of /ranks. level:
  /// of the recorder, as text. The recorder must exist as long as this object. Collective.
  TraceWriter(const comm::Group& world, const std::filesystem::path& folder, std::string level,
              std::function<RankRecord()> rank);
  ~TraceWriter();  ///< stops recording; leaves the files of an unfinished trace
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// Writes what is due, as at the end of a span of Level::stages: for ranks that wait for long.
  void write_if_due();
  /// Appends all rows to this rank's files now; on rank 0 also makes trace.h5 from the files.
  void write_part();
  /// Writes the complete folder/trace.h5, replacing an existing one as write_pieces does, and
  /// removes folder/trace/. Recording ends. Collective.
  void finish_together();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace reelmesh

#pragma once
// Makes trace.h5, from the files of trace_parts.hpp or of a job that was not run.
#include <chrono>
#include <filesystem>
#include <string>

#include "store/trace_parts.hpp"

namespace reelmesh {

/// Makes folder/trace.h5 on this rank alone from the rows that all ranks have written so far, as
/// write_pieces. Its attribute `complete` is FALSE. Called on rank 0, whose clock it uses.
/// Error(cannot_create), Error(io).
void make_trace_file(const std::filesystem::path& folder, int ranks, const std::string& level);

/// Writes folder/trace.h5 in parallel, each rank its own rows: as write_pieces. mine: of this rank,
/// with both comparisons of the clock. Collective.
void write_trace_file(const comm::Group& world, const std::filesystem::path& folder,
                      const std::string& level, const RankPart& mine);

/// Writes folder/trace.h5 of a job that was not run, from this process alone, as write_pieces: of
/// the level `stages`, without messages and counters. start: time 0. spans: of each rank, by their
/// starts, in ns since time 0. Error(cannot_create), Error(io).
void write_simulated_trace(const std::filesystem::path& folder,
                           std::chrono::system_clock::time_point start,
                           const std::vector<RankRecord>& ranks,
                           const std::vector<std::vector<trace::Span>>& spans);

}  // namespace reelmesh

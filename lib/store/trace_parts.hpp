#pragma once
// The files in OUT/trace/ from which trace.h5 is made: for each rank arrays of table rows, and one
// file with what describes the rank. Times in them are those of the rank's own clock. Only the job
// that wrote them reads them.
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/file.hpp"
#include "store/trace_clock.hpp"
#include "store/trace_rows.hpp"

namespace reelmesh {

/// The tables whose rows are written while a job runs.
enum class PartTable : std::uint8_t { spans, messages, counters };
inline constexpr std::array<PartTable, 3> part_tables{PartTable::spans, PartTable::messages,
                                                      PartTable::counters};
TableFormat part_table(PartTable kind);

/// What describes a rank; written again with each part.
struct RankPart {
  char format[8] = {};
  TraceClock clock;
  std::int64_t earliest_ns = INT64_MAX;  ///< of its rows, on its own clock
  RankRow row{};
  std::array<MemoryRow, 2 * purposes> memory{};
};

/// The files of one rank, opened for writing.
class PartWriter {
 public:
  PartWriter() = default;
  /// Creates them, empty. Error(cannot_create).
  PartWriter(const std::filesystem::path& folder, int rank);
  /// Appends rows. Error(io); what has been written of them then stays.
  void append(PartTable table, const void* rows, std::size_t bytes);
  void write(const RankPart& part);  ///< Error(io)

 private:
  std::filesystem::path folder_;
  int rank_ = 0;
  std::array<Descriptor, part_tables.size()> rows_;
  Descriptor rank_part_;
};

/// Reads the files of one rank, which may be growing.
class PartReader {
 public:
  PartReader(const std::filesystem::path& folder, int rank) : folder_(folder), rank_(rank) {}
  /// Error(io) if the file is missing or no RankPart.
  RankPart rank_part() const;
  /// Complete rows that are there; the last one may be half written. Error(io).
  std::int64_t rows(PartTable table, std::size_t row_bytes) const;
  /// Rows as bytes, with times of `clock` relative to `origin`, a time of rank 0. Error(io).
  std::string read(PartTable table, std::size_t row_bytes, std::int64_t first, std::int64_t count,
                   const TraceClock& clock, std::int64_t origin) const;

 private:
  std::filesystem::path folder_;
  int rank_;
};

/// folder/trace/
std::filesystem::path parts_folder(const std::filesystem::path& folder);

}  // namespace reelmesh

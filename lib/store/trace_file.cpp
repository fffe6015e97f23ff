#include "store/trace_file.hpp"

#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

using Tables = std::array<Table, part_tables.size() + 2>;
using RowCounts = std::array<std::int64_t, std::tuple_size_v<Tables>>;

// Those of the parts first.
Tables trace_tables() {
  return {span_table(), message_table(), counter_table(), rank_table(), memory_table()};
}

using TimePoint = std::chrono::system_clock::time_point;

// Of a time on this rank's clock.
TimePoint time_of(std::int64_t own_ns) {
  using namespace std::chrono;
  return system_clock::now() -
         duration_cast<system_clock::duration>(nanoseconds(trace::now_ns() - own_ns));
}

// "2026-01-31T12:34:56.789Z"
std::string with_milliseconds(TimePoint exact) {
  using namespace std::chrono;
  const auto time = floor<milliseconds>(exact);
  const auto whole = floor<seconds>(time);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(system_clock::to_time_t(whole)),
                     (time - whole).count());
}

// The rows of one rank of the job.
struct RowsOfRank {
  RankPart part;  // has those of /ranks and /memory
  RowCounts counts{0, 0, 0, 1, 2 * purposes};
  std::function<std::string(PartTable table, std::int64_t first, std::int64_t count)> read;
};

// Each rank of `group` passes the rows of some ranks, which follow those of the ranks before it.
void write_rows(const comm::Group& group, const std::filesystem::path& folder,
                const std::string& level, TimePoint origin, bool complete, const Tables& tables,
                const std::vector<RowsOfRank>& rows) {
  RowCounts own{}, before{}, totals{};
  const auto add = [](RowCounts& sums, const RowCounts& counts) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += counts[i];
  };
  for (const RowsOfRank& of_rank : rows) add(own, of_rank.counts);
  const std::vector<RowCounts> all = comm::all_gather_value(group, own);
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) before = totals;
    add(totals, all[static_cast<std::size_t>(rank)]);
  }
  std::vector<Piece> pieces;
  for (const RowsOfRank& of_rank : rows) {
    const std::array<const void*, 2> others{&of_rank.part.row, of_rank.part.memory.data()};
    for (std::size_t i = 0; i < tables.size(); ++i) {
      // HDF5 allocates no storage for a table without any rows.
      if (totals[i] == 0) continue;
      Piece piece{tables[i].name, tables[i].type.get(), hdf5::Storage::whole,
                  Box{{before[i]}, {of_rank.counts[i]}}};
      if (i < part_tables.size()) {
        piece.read = std::bind_front(of_rank.read, part_tables[i]);
      } else {
        piece.values = others[i - part_tables.size()];
      }
      pieces.push_back(std::move(piece));
    }
    add(before, of_rank.counts);
  }
  const auto structure = [&](hid_t file) {
    hdf5::write_title(file, "trace of reelmesh");
    hdf5::write_attribute(file, "level", level);
    hdf5::write_attribute(file, "start", with_milliseconds(origin));
    hdf5::write_flag(file, "complete", complete);
    for (std::size_t i = 0; i < tables.size(); ++i) create_table(file, tables[i], totals[i]);
  };
  write_pieces(group, folder / "trace.h5", structure, 0, pieces);
}

// The earliest row of the rank on the clock of rank 0; without rows, when recording began.
std::int64_t part_start(const RankPart& part) {
  const bool empty = part.earliest_ns == RankPart().earliest_ns;
  return part.clock.on_first_rank(empty ? part.clock.start_ns : part.earliest_ns);
}

// As write_rows, from the files of these ranks.
void write_parts(const comm::Group& group, const std::filesystem::path& folder,
                 const std::string& level, bool complete, const std::vector<RankPart>& parts) {
  const Tables tables = trace_tables();
  std::int64_t start = INT64_MAX;
  for (const RankPart& part : parts) start = std::min(start, part_start(part));
  const std::int64_t origin = -group.max(-start);
  std::vector<RowsOfRank> rows;
  comm::run_collectively(group, [&] {
    for (const RankPart& part : parts) {
      RowsOfRank& added = rows.emplace_back();
      added.part = part;
      added.part.row.clock_offset_ns = part.clock.end_offset_ns;
      added.part.row.clock_drift_ppb = part.clock.drift_ppb();
      const PartReader reader(folder, part.row.rank);
      for (std::size_t i = 0; i < part_tables.size(); ++i) {  // the files may grow meanwhile
        added.counts[i] = reader.rows(part_tables[i], tables[i].row_bytes);
      }
      added.read = [reader, &tables, clock = part.clock, origin](
                       PartTable table, std::int64_t first, std::int64_t count) {
        const std::size_t row_bytes = tables[static_cast<std::size_t>(table)].row_bytes;
        return reader.read(table, row_bytes, first, count, clock, origin);
      };
    }
  });
  write_rows(group, folder, level, time_of(origin), complete, tables, rows);
}

// This process, without MPI.
comm::Group alone() { return comm::Group::pretended(0, 1); }

}  // namespace

void make_trace_file(const std::filesystem::path& folder, int ranks, const std::string& level) {
  std::vector<RankPart> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back(PartReader(folder, rank).rank_part());
  }
  write_parts(alone(), folder, level, false, parts);
}

void write_trace_file(const comm::Group& world, const std::filesystem::path& folder,
                      const std::string& level, const RankPart& mine) {
  write_parts(world, folder, level, true, {mine});
}

void write_simulated_trace(const std::filesystem::path& folder, TimePoint start,
                           const std::vector<RankRecord>& ranks,
                           const std::vector<std::vector<trace::Span>>& spans) {
  std::vector<RowsOfRank> rows;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto rank = static_cast<int>(i);
    RowsOfRank& added = rows.emplace_back();
    added.part.row = to_rank_row(ranks[i], rank);
    added.part.memory = memory_rows(ranks[i], rank);
    added.counts[static_cast<std::size_t>(PartTable::spans)] = std::ssize(spans[i]);
    added.read = [&own = spans[i], rank](PartTable, std::int64_t first, std::int64_t count) {
      std::string bytes;
      for (std::int64_t at = first; at < first + count; ++at) {
        const SpanRow row = to_span_row(own[static_cast<std::size_t>(at)], rank);
        bytes.append(reinterpret_cast<const char*>(&row), sizeof row);
      }
      return bytes;
    };
  }
  const auto level = std::size_t(trace::Level::stages);
  write_rows(alone(), folder, std::string(trace::level_names[level]), start, true, trace_tables(),
             rows);
}

}  // namespace reelmesh

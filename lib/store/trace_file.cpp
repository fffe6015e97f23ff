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

using Tables = std::array<TableFormat, part_tables.size()>;
using RowCounts = std::array<std::int64_t, part_tables.size()>;

Tables trace_tables() { return {span_table(), message_table(), counter_table()}; }

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
  RowCounts counts{};
  std::function<std::string(PartTable table, std::int64_t first, std::int64_t count)> read;
};

// Rows of one table that follow each other, of several sources.
class Rows {
 public:
  using Read = std::function<std::string(std::int64_t first, std::int64_t count)>;
  void add(std::int64_t count, Read read) {
    if (count == 0) return;
    parts_.push_back({rows_, count, std::move(read)});
    rows_ += count;
  }
  std::string read(std::int64_t first, std::int64_t count) const {
    std::string bytes;
    for (const Part& part : parts_) {
      const std::int64_t begin = std::max(first, part.begin),
                         end = std::min(first + count, part.begin + part.count);
      if (begin < end) bytes += part.read(begin - part.begin, end - begin);
    }
    return bytes;
  }

 private:
  struct Part {
    std::int64_t begin, count;
    Read read;
  };
  std::vector<Part> parts_;
  std::int64_t rows_ = 0;
};

// A table's rows in the file: those that each rank has, and those that it writes, which are whole
// chunks: from the first chunk that begins with its rows on.
class RowLayout {
 public:
  // counts: rows of each rank.
  RowLayout(const std::vector<std::int64_t>& counts) : begins_{0} {
    for (const std::int64_t count : counts) begins_.push_back(begins_.back() + count);
  }
  std::int64_t total() const { return begins_.back(); }
  std::int64_t begin(int rank) const { return begins_[static_cast<std::size_t>(rank)]; }
  std::int64_t end(int rank) const { return begin(rank + 1); }
  std::int64_t written_from(int rank) const {
    const std::int64_t chunk = hdf5::max_chunk;
    return std::min((begin(rank) + chunk - 1) / chunk * chunk, total());
  }
  std::int64_t written_to(int rank) const { return written_from(rank + 1); }
  // Rows that `from` has and `to` writes: less than a chunk.
  std::int64_t moved(int from, int to) const {
    return std::max<std::int64_t>(
        std::min(end(from), written_to(to)) - std::max(begin(from), written_from(to)), 0);
  }

 private:
  std::vector<std::int64_t> begins_;
};

comm::Message message_of(int peer, std::string& bytes) {
  return {peer, Tensor::wrap(bytes.data(), {std::ssize(bytes)}, DType::uint8, nullptr)};
}

// Changes `own`, the rows that this rank has, into those that it writes.
void move_to_writers(const comm::Group& group, const RowLayout& layout, std::size_t row_bytes,
                     Rows& own) {
  const int mine = group.rank();
  const std::int64_t begin = layout.begin(mine), end = layout.end(mine);
  const std::int64_t kept_from = std::min(layout.written_from(mine), end);
  std::vector<std::string> sent, received;  // what messages point to
  sent.reserve(1);
  received.reserve(static_cast<std::size_t>(group.size()));
  std::vector<comm::Message> sends, receives;
  Rows written;
  written.add(end - kept_from,
              [own, skipped = kept_from - begin](std::int64_t first, std::int64_t count) {
                return own.read(skipped + first, count);
              });
  comm::run_collectively(group, [&] {
    if (kept_from > begin) sent.push_back(own.read(0, kept_from - begin));
  });
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank < mine && layout.moved(mine, rank) > 0) sends.push_back(message_of(rank, sent[0]));
    const std::int64_t rows = rank > mine ? layout.moved(rank, mine) : 0;
    if (rows == 0) continue;
    std::string& bytes = received.emplace_back(static_cast<std::size_t>(rows) * row_bytes, '\0');
    receives.push_back(message_of(rank, bytes));
  }
  group.exchange(sends, receives);
  for (std::string& bytes : received) {
    const std::int64_t rows = std::ssize(bytes) / static_cast<std::int64_t>(row_bytes);
    written.add(rows,
                [bytes = std::move(bytes), row_bytes](std::int64_t first, std::int64_t count) {
                  return bytes.substr(static_cast<std::size_t>(first) * row_bytes,
                                      static_cast<std::size_t>(count) * row_bytes);
                });
  }
  own = std::move(written);
}

// An upper bound of what the chunks of a table take: deflate adds less than 1 % to incompressible
// data; each chunk has a checksum, an index entry, and a placeholder that HDF5 writes first.
std::int64_t max_chunk_bytes(const TableFormat& table, std::int64_t rows) {
  const std::int64_t raw = rows * static_cast<std::int64_t>(table.row_bytes),
                     chunks = rows / hdf5::max_chunk + 1;
  return raw + raw / 50 + 4096 * chunks * std::ssize(table.columns);
}

// Each rank of `group` passes the rows of some ranks, which follow those of the ranks before it.
void write_rows(const comm::Group& group, const std::filesystem::path& folder,
                const std::string& level, TimePoint origin, bool complete, const Tables& tables,
                const std::vector<RowsOfRank>& rows) {
  std::vector<RankRow> rank_rows;
  std::vector<MemoryRow> memory_rows;
  RowCounts own{};
  for (const RowsOfRank& of_rank : rows) {
    rank_rows.push_back(of_rank.part.row);
    memory_rows.insert(memory_rows.end(), of_rank.part.memory.begin(), of_rank.part.memory.end());
    for (std::size_t i = 0; i < own.size(); ++i) own[i] += of_rank.counts[i];
  }
  const auto all_rank_rows = comm::gather_values(group, rank_rows, 0);
  const auto all_memory_rows = comm::gather_values(group, memory_rows, 0);
  const std::vector<RowCounts> counts = comm::all_gather_value(group, own);
  std::vector<Piece> pieces;
  RowCounts totals{};
  std::int64_t chunk_bytes = 0;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    std::vector<std::int64_t> of_table;
    for (const RowCounts& of_rank : counts) of_table.push_back(of_rank[i]);
    const RowLayout layout(of_table);
    totals[i] = layout.total();
    if (totals[i] == 0) continue;  // there is nothing to write
    chunk_bytes += max_chunk_bytes(tables[i], totals[i]);
    Rows mine;
    for (const RowsOfRank& of_rank : rows) {
      mine.add(of_rank.counts[i], std::bind_front(of_rank.read, part_tables[i]));
    }
    move_to_writers(group, layout, tables[i].row_bytes, mine);
    const std::int64_t first = layout.written_from(group.rank());
    Piece piece{tables[i].name,
                hdf5::no_id,
                hdf5::Storage::deflated_chunks,
                Box{{first}, {layout.written_to(group.rank()) - first}},
                nullptr,
                [mine = std::move(mine)](std::int64_t at, std::int64_t count) {
                  return mine.read(at, count);
                },
                &tables[i]};
    pieces.push_back(std::move(piece));
  }
  const auto structure = [&](hid_t file) {
    hdf5::write_title(file, "trace of reelmesh", hdf5::format_version);
    hdf5::write_attribute(file, "level", level);
    hdf5::write_attribute(file, "start", with_milliseconds(origin));
    hdf5::write_flag(file, "complete", complete);
    for (std::size_t i = 0; i < tables.size(); ++i) create_table(file, tables[i], totals[i]);
    const auto write = [&](const TableFormat& table, const auto& of_ranks) {
      std::string bytes;
      for (const auto& of_rank : of_ranks) bytes += bytes_of(of_rank);
      write_table(file, table, bytes);
    };
    write(rank_table(), all_rank_rows);
    write(memory_table(), all_memory_rows);
  };
  write_pieces(group, folder / "trace.h5", structure, chunk_bytes, pieces);
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

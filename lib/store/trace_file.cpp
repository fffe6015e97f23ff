#include "store/trace_file.hpp"

#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <numeric>
#include <optional>
#include <vector>

#include "comm/together.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

constexpr std::size_t index(PartTable kind) { return static_cast<std::size_t>(kind); }

struct Tables {
  std::array<Table, part_tables.size()> parts{span_table(), message_table(), counter_table()};
  Table ranks = rank_table(), memory = memory_table();
  const Table& of(PartTable kind) const { return parts[index(kind)]; }
};

using RowCounts = std::array<std::int64_t, part_tables.size()>;
constexpr std::int64_t memory_rows_of_rank = std::int64_t{2} * purposes;

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

// Everything but the rows. totals: rows of all ranks. origin: time 0.
void make_structure(hid_t file, const Tables& tables, const RowCounts& totals, int ranks,
                    const std::string& level, TimePoint origin, bool complete) {
  hdf5::write_title(file, "trace of reelmesh");
  hdf5::write_attribute(file, "level", level);
  hdf5::write_attribute(file, "start", with_milliseconds(origin));
  hdf5::write_flag(file, "complete", complete);
  for (const PartTable kind : part_tables) {
    create_table(file, tables.of(kind), totals[index(kind)]);
  }
  create_table(file, tables.ranks, ranks);
  create_table(file, tables.memory, ranks * memory_rows_of_rank);
}

// The earliest row of the rank on the clock of rank 0; without rows, when recording began.
std::int64_t part_start(const RankPart& part) {
  const bool empty = part.earliest_ns == RankPart().earliest_ns;
  return part.clock.on_first_rank(empty ? part.clock.start_ns : part.earliest_ns);
}

// The rows of one rank. Pieces refer to it.
struct RowsOfRank {
  PartReader reader;
  RankPart part;
  RowCounts counts{};  // the files may grow meanwhile

  RowsOfRank(const std::filesystem::path& folder, int rank, const RankPart& described,
             const Tables& tables)
      : reader(folder, rank), part(described) {
    part.row.clock_offset_ns = part.clock.end_offset_ns;
    part.row.clock_drift_ppb = part.clock.drift_ppb();
    for (const PartTable kind : part_tables) {
      counts[index(kind)] = reader.rows(kind, tables.of(kind).row_bytes);
    }
  }

  // Its pieces of all tables. before: rows of the ranks before it. Tables without any rows have no
  // piece: HDF5 allocates no storage for a dataset without elements and does not write to it.
  std::vector<Piece> pieces(const Tables& tables, std::int64_t rank, const RowCounts& before,
                            const RowCounts& totals, std::int64_t origin) const {
    std::vector<Piece> all{{"ranks", tables.ranks.type.get(), Box{{rank}, {1}}, &part.row, {}},
                           {"memory",
                            tables.memory.type.get(),
                            Box{{rank * memory_rows_of_rank}, {memory_rows_of_rank}},
                            part.memory.data(),
                            {}}};
    for (const PartTable kind : part_tables) {
      if (totals[index(kind)] == 0) continue;
      const Table& table = tables.of(kind);
      const auto read = [this, kind, origin, bytes = table.row_bytes](std::int64_t first,
                                                                      std::int64_t count) {
        return reader.read(kind, bytes, first, count, part.clock, origin);
      };
      const Box box{{before[index(kind)]}, {counts[index(kind)]}};
      all.push_back({table.name, table.type.get(), box, nullptr, read});
    }
    return all;
  }
};

}  // namespace

void make_trace_file(const std::filesystem::path& folder, int ranks, const std::string& level) {
  const Tables tables;
  std::deque<RowsOfRank> rows;
  RowCounts totals{};
  std::int64_t origin = INT64_MAX;
  for (int rank = 0; rank < ranks; ++rank) {
    const RankPart part = PartReader(folder, rank).rank_part();
    const RowsOfRank& added = rows.emplace_back(folder, rank, part, tables);
    origin = std::min(origin, part_start(part));
    for (std::size_t i = 0; i < totals.size(); ++i) totals[i] += added.counts[i];
  }
  hdf5::write_file(folder / "trace.h5", [&](hid_t file) {
    make_structure(file, tables, totals, ranks, level, time_of(origin), false);
    RowCounts before{};
    for (int rank = 0; rank < ranks; ++rank) {
      const RowsOfRank& own = rows[static_cast<std::size_t>(rank)];
      write_pieces_alone(file, own.pieces(tables, rank, before, totals, origin));
      for (std::size_t i = 0; i < before.size(); ++i) before[i] += own.counts[i];
    }
  });
}

void write_trace_file(const comm::Group& world, const std::filesystem::path& folder,
                      const std::string& level, const RankPart& mine) {
  const Tables tables;
  const int rank = world.rank(), ranks = world.size();
  const std::int64_t origin = -world.max(-part_start(mine));
  std::optional<RowsOfRank> rows;
  comm::run_collectively(world, [&] { rows.emplace(folder, rank, mine, tables); });
  RowCounts before{}, totals{};
  for (const PartTable kind : part_tables) {
    const std::size_t i = index(kind);
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), 0);
    counts[static_cast<std::size_t>(rank)] = rows->counts[i];
    world.sum(counts);
    before[i] = std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
    totals[i] = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }
  const auto structure = [&](hid_t file) {
    make_structure(file, tables, totals, ranks, level, time_of(origin), true);
  };
  write_pieces(world, folder / "trace.h5", structure, 0,
               rows->pieces(tables, rank, before, totals, origin));
}

void write_simulated_trace(const std::filesystem::path& folder, TimePoint start,
                           const std::vector<RankRecord>& ranks,
                           const std::vector<std::vector<trace::Span>>& spans) {
  const Tables tables;
  RowCounts totals{};
  for (const auto& of_rank : spans) totals[index(PartTable::spans)] += std::ssize(of_rank);
  const auto level =
      std::string(trace::level_names[static_cast<std::size_t>(trace::Level::stages)]);
  hdf5::write_file(folder / "trace.h5", [&](hid_t file) {
    make_structure(file, tables, totals, static_cast<int>(ranks.size()), level, start, true);
    std::int64_t before = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto number = static_cast<std::int64_t>(rank);
      const RankRow row = to_rank_row(ranks[rank], static_cast<int>(rank));
      const auto memory = memory_rows(ranks[rank], static_cast<int>(rank));
      const auto read = [&](std::int64_t first, std::int64_t count) {
        std::string bytes(static_cast<std::size_t>(count) * sizeof(SpanRow), '\0');
        for (std::int64_t i = 0; i < count; ++i) {
          const SpanRow made =
              to_span_row(spans[rank][static_cast<std::size_t>(first + i)], static_cast<int>(rank));
          std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(SpanRow), &made,
                      sizeof made);
        }
        return bytes;
      };
      std::vector<Piece> pieces{{"ranks", tables.ranks.type.get(), Box{{number}, {1}}, &row, {}},
                                {"memory",
                                 tables.memory.type.get(),
                                 Box{{number * memory_rows_of_rank}, {memory_rows_of_rank}},
                                 memory.data(),
                                 {}}};
      if (!spans[rank].empty()) {
        const Table& table = tables.of(PartTable::spans);
        const Box box{{before}, {std::ssize(spans[rank])}};
        pieces.push_back({table.name, table.type.get(), box, nullptr, read});
      }
      write_pieces_alone(file, pieces);
      before += std::ssize(spans[rank]);
    }
  });
}

}  // namespace reelmesh

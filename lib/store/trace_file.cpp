#include "store/trace_file.hpp"

#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "comm/together.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

struct Tables {
  std::array<Table, part_tables.size()> parts{span_table(), message_table(), counter_table()};
  Table ranks = rank_table(), memory = memory_table();
  const Table& of(PartTable kind) const { return parts[static_cast<std::size_t>(kind)]; }
};

using RowCounts = std::array<std::int64_t, part_tables.size()>;
constexpr std::int64_t memory_rows_of_rank = std::int64_t{2} * purposes;

// "2026-01-31T12:34:56.789Z", of a time on this rank's clock.
std::string iso8601(std::int64_t own_ns) {
  using namespace std::chrono;
  const auto ago = duration_cast<system_clock::duration>(nanoseconds(trace::now_ns() - own_ns));
  const auto time = floor<milliseconds>(system_clock::now() - ago);
  const auto whole = floor<seconds>(time);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(system_clock::to_time_t(whole)),
                     (time - whole).count());
}

// Everything but the rows. totals: rows of all ranks. origin: time 0 on the clock of this rank 0.
void make_structure(hid_t file, const Tables& tables, const RowCounts& totals, int ranks,
                    const std::string& level, std::int64_t origin, bool complete) {
  hdf5::write_title(file, "trace of reelmesh");
  hdf5::write_attribute(file, "level", level);
  hdf5::write_attribute(file, "start", iso8601(origin));
  hdf5::write_flag(file, "complete", complete);
  for (const PartTable kind : part_tables) {
    create_table(file, tables.of(kind), totals[static_cast<std::size_t>(kind)]);
  }
  create_table(file, tables.ranks, ranks);
  create_table(file, tables.memory, ranks * memory_rows_of_rank);
}

// The earliest row of the rank on the clock of rank 0; without rows, when recording began.
std::int64_t part_start(const RankPart& part) {
  const bool empty = part.earliest_ns == RankPart().earliest_ns;
  return part.clock.on_first_rank(empty ? part.clock.start_ns : part.earliest_ns);
}

RankRow rank_row_with_clock(const RankPart& part) {
  RankRow row = part.row;
  row.clock_offset_ns = part.clock.end_offset_ns;
  row.clock_drift_ppb = part.clock.drift_ppb();
  return row;
}

void fill_from_parts(hid_t file, const std::filesystem::path& folder, int ranks,
                     const std::string& level) {
  const Tables tables;
  std::vector<RankPart> parts;
  std::vector<RowCounts> counts;  // the files may grow meanwhile
  RowCounts totals{};
  std::int64_t origin = INT64_MAX;
  for (int rank = 0; rank < ranks; ++rank) {
    const PartReader reader(folder, rank);
    parts.push_back(reader.rank_part());
    origin = std::min(origin, part_start(parts.back()));
    RowCounts& of_rank = counts.emplace_back();
    for (const PartTable kind : part_tables) {
      const auto i = static_cast<std::size_t>(kind);
      totals[i] += of_rank[i] = reader.rows(kind, tables.of(kind).row_bytes);
    }
  }
  make_structure(file, tables, totals, ranks, level, origin, false);

  for (const PartTable kind : part_tables) {
    const auto i = static_cast<std::size_t>(kind);
    if (totals[i] == 0) continue;
    const Table& table = tables.of(kind);
    const hdf5::Dataset dataset = hdf5::open_dataset(file, table.name);
    const auto portion = static_cast<std::int64_t>((4 << 20) / table.row_bytes);
    std::int64_t before = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      const PartReader reader(folder, rank);
      const std::int64_t all = counts[index][i];
      for (std::int64_t first = 0; first < all; first += portion) {
        const std::int64_t count = std::min(portion, all - first);
        const std::string rows =
            reader.read(kind, table.row_bytes, first, count, parts[index].clock, origin);
        hdf5::write_box_alone(dataset.get(), table.type.get(), Box{{before + first}, {count}},
                              rows.data());
      }
      before += all;
    }
  }
  std::vector<RankRow> rank_rows;
  std::vector<MemoryRow> memory_rows;
  for (const RankPart& part : parts) {
    rank_rows.push_back(rank_row_with_clock(part));
    memory_rows.insert(memory_rows.end(), part.memory.begin(), part.memory.end());
  }
  const auto write = [&](const Table& table, const void* rows) {
    hdf5::write_all(hdf5::open_dataset(file, table.name).get(), table.type.get(), rows);
  };
  write(tables.ranks, rank_rows.data());
  write(tables.memory, memory_rows.data());
}

}  // namespace

void make_trace_file(const std::filesystem::path& folder, int ranks, const std::string& level) {
  const std::filesystem::path path = folder / "trace.h5", partial = partial_path(path);
  try {
    create_empty(partial);
    hdf5::File file = hdf5::create(partial);
    try {
      fill_from_parts(file.get(), folder, ranks, level);
      file.close();
    } catch (...) {
      file.abandon();
      throw;
    }
    sync_file(partial);
    publish(path);
  } catch (...) {
    discard(partial);
    throw;
  }
}

void write_trace_file(const comm::Group& world, const std::filesystem::path& folder,
                      const std::string& level, const RankPart& mine) {
  const Tables tables;
  const PartReader reader(folder, world.rank());
  const std::int64_t origin = -world.max(-part_start(mine));
  const RankRow rank_row = rank_row_with_clock(mine);
  const std::int64_t rank = world.rank();
  std::vector<Piece> pieces{{"ranks", tables.ranks.type.get(), Box{{rank}, {1}}, &rank_row, {}},
                            {"memory",
                             tables.memory.type.get(),
                             Box{{rank * memory_rows_of_rank}, {memory_rows_of_rank}},
                             mine.memory.data(),
                             {}}};
  RowCounts own{}, totals{};
  comm::run_collectively(world, [&] {
    for (const PartTable kind : part_tables) {
      own[static_cast<std::size_t>(kind)] = reader.rows(kind, tables.of(kind).row_bytes);
    }
  });
  std::int64_t bytes = std::int64_t{1} << 16;  // of what is not rows
  bytes += world.size() * static_cast<std::int64_t>(sizeof(RankRow) + sizeof mine.memory);
  for (const PartTable kind : part_tables) {
    const Table& table = tables.of(kind);
    std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), 0);
    counts[static_cast<std::size_t>(rank)] = own[static_cast<std::size_t>(kind)];
    world.sum(counts);
    const std::int64_t before =
        std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    totals[static_cast<std::size_t>(kind)] = total;
    bytes += total * static_cast<std::int64_t>(table.row_bytes);
    // HDF5 allocates no storage for a dataset without elements and does not write to it.
    if (total == 0) continue;
    const auto read = [&, kind](std::int64_t first, std::int64_t count) {
      return reader.read(kind, tables.of(kind).row_bytes, first, count, mine.clock, origin);
    };
    pieces.push_back({table.name, table.type.get(),
                      Box{{before}, {counts[static_cast<std::size_t>(rank)]}}, nullptr, read});
  }
  const auto structure = [&](hid_t file) {
    make_structure(file, tables, totals, world.size(), level, origin, true);
  };
  write_pieces(world, folder / "trace.h5", structure, bytes, pieces);
}

}  // namespace reelmesh

#include "store/trace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>

#include "store/pieces.hpp"

namespace reelmesh {
namespace {

// Table rows, with the same layout in memory and in the file.
struct SpanRow {
  std::int32_t rank;
  char lane[16];
  char name[48];
  std::int32_t clip, step, layer;
  std::int64_t start_ns, duration_ns, bytes, flops;
};

struct RankRow {
  std::int32_t rank;
  char host[64];
  char role[32];
  char device[64];
  std::int32_t threads;
  std::int64_t peak_memory_bytes, peak_device_memory_bytes, clock_offset_ns, padded_products;
  char kernels[160];
};

struct MemoryRow {
  std::int32_t rank;
  char place[12];
  char purpose[16];
  std::int64_t peak_bytes, bytes_at_peak;
};

// No padding between members, since rows are compared as bytes after writing.
static_assert(sizeof(SpanRow) == 112 && sizeof(RankRow) == 360 && sizeof(MemoryRow) == 48);

hdf5::Datatype span_type() {
  return hdf5::compound(sizeof(SpanRow),
                        {{"rank", offsetof(SpanRow, rank), H5T_NATIVE_INT32},
                         {"lane", offsetof(SpanRow, lane), hdf5::no_id, sizeof SpanRow::lane},
                         {"name", offsetof(SpanRow, name), hdf5::no_id, sizeof SpanRow::name},
                         {"clip", offsetof(SpanRow, clip), H5T_NATIVE_INT32},
                         {"step", offsetof(SpanRow, step), H5T_NATIVE_INT32},
                         {"layer", offsetof(SpanRow, layer), H5T_NATIVE_INT32},
                         {"start_ns", offsetof(SpanRow, start_ns), H5T_NATIVE_INT64},
                         {"duration_ns", offsetof(SpanRow, duration_ns), H5T_NATIVE_INT64},
                         {"bytes", offsetof(SpanRow, bytes), H5T_NATIVE_INT64},
                         {"flops", offsetof(SpanRow, flops), H5T_NATIVE_INT64}});
}

hdf5::Datatype rank_type() {
  return hdf5::compound(
      sizeof(RankRow),
      {{"rank", offsetof(RankRow, rank), H5T_NATIVE_INT32},
       {"host", offsetof(RankRow, host), hdf5::no_id, sizeof RankRow::host},
       {"role", offsetof(RankRow, role), hdf5::no_id, sizeof RankRow::role},
       {"device", offsetof(RankRow, device), hdf5::no_id, sizeof RankRow::device},
       {"threads", offsetof(RankRow, threads), H5T_NATIVE_INT32},
       {"peak_memory_bytes", offsetof(RankRow, peak_memory_bytes), H5T_NATIVE_INT64},
       {"peak_device_memory_bytes", offsetof(RankRow, peak_device_memory_bytes), H5T_NATIVE_INT64},
       {"clock_offset_ns", offsetof(RankRow, clock_offset_ns), H5T_NATIVE_INT64},
       {"padded_products", offsetof(RankRow, padded_products), H5T_NATIVE_INT64},
       {"kernels", offsetof(RankRow, kernels), hdf5::no_id, sizeof RankRow::kernels}});
}

hdf5::Datatype memory_type() {
  return hdf5::compound(
      sizeof(MemoryRow),
      {{"rank", offsetof(MemoryRow, rank), H5T_NATIVE_INT32},
       {"place", offsetof(MemoryRow, place), hdf5::no_id, sizeof MemoryRow::place},
       {"purpose", offsetof(MemoryRow, purpose), hdf5::no_id, sizeof MemoryRow::purpose},
       {"peak_bytes", offsetof(MemoryRow, peak_bytes), H5T_NATIVE_INT64},
       {"bytes_at_peak", offsetof(MemoryRow, bytes_at_peak), H5T_NATIVE_INT64}});
}

std::array<MemoryRow, 2 * purposes> memory_rows(const RankRecord& record, int rank) {
  std::array<MemoryRow, 2 * purposes> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool on_host = i < purposes;
    const std::size_t purpose = i % purposes;
    const MemoryByPurpose& memory = on_host ? record.host_memory : record.device_memory;
    MemoryRow& row = rows[i];
    row.rank = rank;
    hdf5::put(row.place, on_host ? "host" : "device");
    hdf5::put(row.purpose, purpose_names[purpose]);
    row.peak_bytes = memory.peak[purpose];
    row.bytes_at_peak = memory.at_peak[purpose];
  }
  return rows;
}

/// This rank's rows with times on the clock of rank 0, sorted by start.
std::vector<SpanRow> rows_of(const std::vector<trace::Span>& spans, int rank, std::int64_t offset) {
  std::vector<SpanRow> rows(spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const trace::Span& span = spans[i];
    SpanRow& row = rows[i];
    row.rank = rank;
    hdf5::put(row.lane, span.lane);
    hdf5::put(row.name, span.name);
    row.clip = span.clip;
    row.step = span.step;
    row.layer = span.layer;
    row.start_ns = span.start_ns + offset;
    row.duration_ns = span.duration_ns;
    row.bytes = span.bytes;
    row.flops = span.flops;
  }
  // Spans were recorded when they ended. Of spans with equal starts, the longer (outer) comes
  // first.
  std::stable_sort(rows.begin(), rows.end(), [](const SpanRow& a, const SpanRow& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
  });
  return rows;
}

RankRow row_of(const RankRecord& record, int rank, std::int64_t offset) {
  RankRow row{};
  row.rank = rank;
  hdf5::put(row.host, record.host);
  hdf5::put(row.role, record.role);
  hdf5::put(row.device, record.device);
  row.threads = record.threads;
  row.peak_memory_bytes = record.peak_memory_bytes;
  row.peak_device_memory_bytes = record.peak_device_memory_bytes;
  row.clock_offset_ns = offset;
  row.padded_products = record.padded_products;
  hdf5::put(row.kernels, record.kernels);
  return row;
}

}  // namespace

std::int64_t clock_offset_ns(const comm::Group& group) {
  constexpr int round_trips = 20;
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  std::int64_t offset = 0;
  const auto message = [](int peer, std::int64_t& value) {
    return comm::Message{peer, Tensor::wrap(&value, {sizeof value}, DType::uint8, nullptr)};
  };
  std::int64_t theirs = 0;
  for (int rank = 1; rank < group.size(); ++rank) {
    for (int i = 0; i < round_trips; ++i) {
      if (group.rank() == 0) {
        group.exchange({}, std::vector{message(rank, theirs)});
        theirs = trace::now_ns();
        group.exchange(std::vector{message(rank, theirs)}, {});
      } else if (group.rank() == rank) {
        std::int64_t sent = trace::now_ns();
        const std::int64_t start = sent;
        group.exchange(std::vector{message(0, sent)}, {});
        group.exchange({}, std::vector{message(0, theirs)});
        const std::int64_t trip = trace::now_ns() - start;
        if (trip < best) {
          best = trip;
          offset = theirs - (start + trip / 2);
        }
      }
    }
  }
  return offset;
}

void write_trace(const comm::Group& world, const std::filesystem::path& folder,
                 const RankRecord& mine, const std::vector<trace::Span>& spans) {
  const std::int64_t offset = clock_offset_ns(world);
  std::vector<SpanRow> rows = rows_of(spans, world.rank(), offset);
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  const std::int64_t earliest = -world.max(-(rows.empty() ? never : rows.front().start_ns));
  for (SpanRow& row : rows) row.start_ns -= earliest;

  std::int64_t before = 0;
  std::int64_t total = 0;
  const std::vector<std::string> counts = world.all_gather(std::to_string(rows.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::int64_t count = std::stoll(counts[static_cast<std::size_t>(rank)]);
    if (rank < world.rank()) before += count;
    total += count;
  }
  const RankRow rank_row = row_of(mine, world.rank(), offset);
  const hdf5::Datatype span_row = span_type();
  const hdf5::Datatype rank_row_type = rank_type();
  const auto memory = memory_rows(mine, world.rank());
  const hdf5::Datatype memory_row = memory_type();
  constexpr std::int64_t rows_of_rank = std::int64_t{2} * purposes;
  const auto structure = [&](hid_t file) {
    hdf5::create_dataset(file, "spans", span_row.get(), {total});
    hdf5::create_dataset(file, "ranks", rank_row_type.get(), {world.size()});
    hdf5::create_dataset(file, "memory", memory_row.get(), {world.size() * rows_of_rank});
    hdf5::write_attribute(file, "long_name", "time spans of all ranks on the clock of rank 0");
  };
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<Piece> pieces{{"ranks", rank_row_type.get(), Box{{world.rank()}, {1}}, &rank_row},
                            {"memory", memory_row.get(),
                             Box{{world.rank() * rows_of_rank}, {rows_of_rank}}, memory.data()}};
  // HDF5 allocates no storage for a dataset without elements and does not write to it.
  if (total > 0) {
    pieces.push_back({"spans", span_row.get(), Box{{before}, {count}}, rows.data()});
  }
  const auto slack = std::int64_t{1} << 16;
  const auto bytes = total * static_cast<std::int64_t>(sizeof(SpanRow)) +
                     world.size() * static_cast<std::int64_t>(sizeof(RankRow) + sizeof memory) +
                     slack;
  write_pieces(world, folder / "trace.h5", structure, bytes, pieces);
}

}  // namespace reelmesh

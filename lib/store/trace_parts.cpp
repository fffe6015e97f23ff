#include "store/trace_parts.hpp"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace reelmesh {
namespace {

constexpr std::string_view format = "rmtrace1";

std::filesystem::path rank_path(const std::filesystem::path& folder, int rank) {
  return parts_folder(folder) / fmt::format("{:06}.rank", rank);
}

std::filesystem::path rows_path(const std::filesystem::path& folder, int rank, PartTable table) {
  return parts_folder(folder) / fmt::format("{:06}.{}", rank, part_table(table).name);
}

static_assert(offsetof(SpanRow, duration_ns) == offsetof(SpanRow, start_ns) + 8 &&
              offsetof(MessageRow, duration_ns) == offsetof(MessageRow, start_ns) + 8);

std::size_t time_offset(PartTable table) {
  switch (table) {
    case PartTable::spans:
      return offsetof(SpanRow, start_ns);
    case PartTable::messages:
      return offsetof(MessageRow, start_ns);
    default:
      return offsetof(CounterRow, time_ns);
  }
}

[[noreturn]] void fail_for(const std::filesystem::path& path, const char* doing) {
  fail(Status::io, "{}: cannot {}: {}", path.string(), doing, std::strerror(errno));
}

// at: offset in the file, or −1 for the end of what was written before.
void write_bytes(int file, const void* bytes, std::size_t count, off_t at,
                 const std::filesystem::path& path) {
  const auto* from = static_cast<const std::byte*>(bytes);
  while (count > 0) {
    const ssize_t written = at < 0 ? ::write(file, from, count) : ::pwrite(file, from, count, at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_for(path, "write to it");
    from += written;
    count -= static_cast<std::size_t>(written);
    if (at >= 0) at += written;
  }
}

void read_bytes(int file, void* bytes, std::size_t count, off_t at,
                const std::filesystem::path& path) {
  const std::size_t found = read_at(file, bytes, count, at);
  if (found < count && errno != 0) fail_for(path, "read it");
  require(found == count, Status::io, "{}: found its end at byte {}, expected {} bytes more",
          path.string(), at + static_cast<off_t>(found), count - found);
}

}  // namespace

std::filesystem::path parts_folder(const std::filesystem::path& folder) { return folder / "trace"; }

TableFormat part_table(PartTable kind) {
  switch (kind) {
    case PartTable::spans:
      return span_table();
    case PartTable::messages:
      return message_table();
    default:
      return counter_table();
  }
}

PartWriter::PartWriter(const std::filesystem::path& folder, int rank)
    : folder_(folder), rank_(rank) {
  for (const PartTable table : part_tables) {
    rows_[static_cast<std::size_t>(table)] = create_empty(rows_path(folder, rank, table));
  }
  rank_part_ = create_empty(rank_path(folder, rank));
}

void PartWriter::append(PartTable table, const void* rows, std::size_t bytes) {
  write_bytes(rows_[static_cast<std::size_t>(table)].get(), rows, bytes, -1,
              rows_path(folder_, rank_, table));
}

void PartWriter::write(const RankPart& part) {
  RankPart marked = part;
  std::memcpy(marked.format, format.data(), format.size());
  write_bytes(rank_part_.get(), &marked, sizeof marked, 0, rank_path(folder_, rank_));
}

RankPart PartReader::rank_part() const {
  const std::filesystem::path path = rank_path(folder_, rank_);
  RankPart part;
  read_bytes(open_file(path, O_RDONLY).get(), &part, sizeof part, 0, path);
  require(std::string_view(part.format, sizeof part.format) == format, Status::io,
          "{}: expected {} at its beginning", path.string(), format);
  return part;
}

std::int64_t PartReader::rows(PartTable table, std::size_t row_bytes) const {
  const std::filesystem::path path = rows_path(folder_, rank_, table);
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  require(!error, Status::io, "{}: cannot find its size: {}", path.string(), error.message());
  return static_cast<std::int64_t>(bytes / row_bytes);
}

std::string PartReader::read(PartTable table, std::size_t row_bytes, std::int64_t first,
                             std::int64_t count, const TraceClock& clock,
                             std::int64_t origin) const {
  const std::filesystem::path path = rows_path(folder_, rank_, table);
  std::string rows(static_cast<std::size_t>(count) * row_bytes, '\0');
  read_bytes(open_file(path, O_RDONLY).get(), rows.data(), rows.size(),
             first * static_cast<std::int64_t>(row_bytes), path);
  for (std::size_t at = time_offset(table); at < rows.size(); at += row_bytes) {
    std::array<std::int64_t, 2> times{};  // a time and a duration, or only a time
    const std::size_t bytes = table == PartTable::counters ? sizeof times[0] : sizeof times;
    std::memcpy(times.data(), rows.data() + at, bytes);
    auto& [start, duration] = times;
    // Both ends are converted, so that spans within others stay within them.
    const std::int64_t end = clock.on_first_rank(start + duration);
    start = clock.on_first_rank(start);
    duration = end - start;
    start -= origin;
    std::memcpy(rows.data() + at, times.data(), bytes);
  }
  return rows;
}

}  // namespace reelmesh

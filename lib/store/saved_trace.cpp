#include "store/saved_trace.hpp"

#include <algorithm>
#include <cstring>

#include "store/check.hpp"
#include "store/trace_rows.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t max_ranks = 1 << 16;

template <std::size_t n>
std::string_view text_of(const char (&column)[n]) {
  return {column, strnlen(column, n)};
}

class TraceFile {
 public:
  explicit TraceFile(const std::filesystem::path& path) : path_(path) {
    std::error_code error;
    require(std::filesystem::exists(path, error), Status::no_input,
            "{}: file not found, expected the trace of a job (trace.level other than off)",
            path.string());
    file_ = hdf5::open_if_valid(path);
    require(static_cast<bool>(file_), Status::data,
            "{}: found a file that HDF5 cannot open, expected trace.h5 of a job", path.string());
    require(hdf5::is_known_version(file_.get()), Status::data,
            "{}: is of a newer format than this program reads, which is {}", path.string(),
            hdf5::format_version);
  }

  // The rows of a table in blocks.
  template <class Row>
  void read(const Table& table, std::int64_t max,
            const std::function<void(const Row&)>& use) const {
    const auto shape = hdf5::dataset_shape(file_.get(), table.name, table.type.get());
    require(shape && shape->size() == 1 && shape->front() <= max, Status::data,
            "{}: found no table /{} of this version of reelmesh, expected trace.h5 of a job",
            path_.string(), table.name);
    if (shape->front() == 0) return;
    require(hdf5::is_whole(file_.get(), table.name, table.type.get(), *shape), Status::data,
            "{}: /{} cannot be read: the file is damaged", path_.string(), table.name);
    const hdf5::Dataset dataset = hdf5::open_dataset(file_.get(), table.name);
    constexpr std::int64_t block = 1 << 14;
    for (std::int64_t first = 0; first < shape->front(); first += block) {
      const std::int64_t count = std::min(block, shape->front() - first);
      const std::string bytes =
          hdf5::read_box(dataset.get(), table.type.get(), Box{{first}, {count}});
      for (std::int64_t i = 0; i < count; ++i) {
        Row row;
        std::memcpy(&row, bytes.data() + static_cast<std::size_t>(i) * sizeof(Row), sizeof(Row));
        use(row);
      }
    }
  }

  std::vector<SavedRank> ranks() const {
    std::vector<SavedRank> found;
    read<RankRow>(rank_table(), max_ranks, [&](const RankRow& row) {
      require(row.threads >= 1, Status::data, "{}: rank {} has {} threads, expected at least one",
              path_.string(), found.size(), row.threads);
      found.push_back({std::string(text_of(row.host)), row.threads});
    });
    require(!found.empty(), Status::data, "{}: found no ranks", path_.string());
    return found;
  }

 private:
  std::filesystem::path path_;
  hdf5::File file_;
};

}  // namespace

std::vector<SavedRank> read_trace_ranks(const std::filesystem::path& path) {
  return TraceFile(path).ranks();
}

std::vector<SavedRank> read_trace(const std::filesystem::path& path,
                                  const std::function<void(const SavedSpan&)>& use) {
  const TraceFile file(path);
  std::vector<SavedRank> ranks = file.ranks();
  file.read<SpanRow>(span_table(), INT64_MAX, [&](const SpanRow& row) {
    require(
        row.rank >= 0 && row.rank < std::ssize(ranks) && row.duration_ns >= 0, Status::data,
        "{}: found a span of rank {} that takes {} ns, expected a rank below {} and no negative "
        "time",
        path.string(), row.rank, row.duration_ns, ranks.size());
    use({text_of(row.name), row.rank, row.clip, row.step, 1e-9 * static_cast<double>(row.start_ns),
         1e-9 * static_cast<double>(row.duration_ns), static_cast<double>(row.flops)});
  });
  return ranks;
}

}  // namespace reelmesh

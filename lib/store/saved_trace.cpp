#include "store/saved_trace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "store/check.hpp"
#include "store/trace_rows.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t max_ranks = 1 << 16;
constexpr std::size_t max_hosts = std::size_t{64} << 20;  // bytes of their names
constexpr std::size_t max_meanings = 1 << 16;

// Tables of format 1 were compound datasets, with texts of fixed length.
namespace format_1 {

struct SpanRow {
  std::int32_t rank;
  char lane[16];
  char name[48];
  std::int32_t clip, step, layer;
  std::int64_t start_ns, duration_ns, bytes, flops, memory_bytes;
};

TableFormat span_table() {
  TableFormat table = reelmesh::span_table();
  table.row_bytes = sizeof(SpanRow);
  const auto change = [&](std::string_view name, std::size_t offset, std::size_t letters) {
    Column& column = *std::ranges::find(table.columns, name, &Column::name);
    column.offset = offset;
    column.letters = letters;
  };
#define REELMESH_CHANGE(member, letters) change(#member, offsetof(SpanRow, member), letters)
  REELMESH_CHANGE(rank, 0);
  REELMESH_CHANGE(lane, sizeof SpanRow::lane);
  REELMESH_CHANGE(name, sizeof SpanRow::name);
  REELMESH_CHANGE(clip, 0);
  REELMESH_CHANGE(step, 0);
  REELMESH_CHANGE(layer, 0);
  REELMESH_CHANGE(start_ns, 0);
  REELMESH_CHANGE(duration_ns, 0);
  REELMESH_CHANGE(bytes, 0);
  REELMESH_CHANGE(flops, 0);
  REELMESH_CHANGE(memory_bytes, 0);
#undef REELMESH_CHANGE
  return table;
}

hdf5::Datatype row_type(const TableFormat& table) {
  hdf5::Datatype type(H5Tcreate(H5T_COMPOUND, table.row_bytes));
  bool made = static_cast<bool>(type);
  for (const Column& column : table.columns) {
    const hdf5::Datatype text(column.letters > 0 ? H5Tcopy(H5T_C_S1) : hdf5::no_id);
    if (text) {
      made = made && H5Tset_size(text.get(), column.letters) >= 0 &&
             H5Tset_strpad(text.get(), H5T_STR_NULLPAD) >= 0 &&
             H5Tset_cset(text.get(), H5T_CSET_UTF8) >= 0;
    }
    made = made &&
           H5Tinsert(type.get(), column.name, column.offset, text ? text.get() : column.type) >= 0;
  }
  expect(made, "HDF5 refuses a table row: {}", hdf5::innermost_error());
  return type;
}

}  // namespace format_1

// Those of its columns that have these names.
TableFormat only(TableFormat table, const std::vector<std::string_view>& names) {
  std::erase_if(table.columns, [&](const Column& column) {
    return std::ranges::find(names, column.name) == names.end();
  });
  return table;
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

  std::vector<SavedRank> ranks() const {
    std::vector<SavedRank> found;
    const auto add = [&](std::string_view host, int threads) {
      require(threads >= 1, Status::data, "{}: rank {} has {} threads, expected at least one",
              path_.string(), found.size(), threads);
      found.push_back({std::string(host), threads});
    };
    if (!in_columns("ranks")) {
      read_rows<RankRow>(rank_table(), max_ranks,
                         [&](const RankRow& row) { add(text_of(row.host), row.threads); });
    } else {
      const hdf5::Dataset dataset = hdf5::is_inside(file_.get(), "ranks/host", H5O_TYPE_DATASET)
                                        ? hdf5::open_dataset(file_.get(), "ranks/host")
                                        : hdf5::Dataset();
      const auto hosts = dataset ? hdf5::read_texts(dataset.get(), max_hosts) : std::nullopt;
      if (!hosts) fail_for("ranks");
      read_columns<RankRow>(only(rank_table(), {"threads"}), max_ranks, [&](const RankRow& row) {
        if (found.size() == hosts->size()) fail_for("ranks");
        add((*hosts)[found.size()], row.threads);
      });
      if (found.size() != hosts->size()) fail_for("ranks");
    }
    require(!found.empty(), Status::data, "{}: found no ranks", path_.string());
    return found;
  }

  void spans(std::int64_t ranks, const std::function<void(const SavedSpan&)>& use) const {
    const auto add = [&](std::string_view name, const auto& row) {
      require(row.rank >= 0 && row.rank < ranks && row.duration_ns >= 0, Status::data,
              "{}: found a span of rank {} that takes {} ns, expected a rank below {} and no "
              "negative time",
              path_.string(), row.rank, row.duration_ns, ranks);
      use({name, row.rank, row.clip, row.step, 1e-9 * static_cast<double>(row.start_ns),
           1e-9 * static_cast<double>(row.duration_ns), static_cast<double>(row.flops)});
    };
    if (!in_columns("spans")) {
      read_rows<format_1::SpanRow>(
          format_1::span_table(), INT64_MAX,
          [&](const format_1::SpanRow& row) { add(text_of(row.name), row); });
      return;
    }
    const TableFormat table =
        only(span_table(), {"rank", "name", "clip", "step", "start_ns", "duration_ns", "flops"});
    std::vector<std::string> names;
    read_columns<SpanRow>(table, INT64_MAX, [&](const SpanRow& row) {
      if (names.empty()) names = meanings("spans/name");
      const auto name = static_cast<std::size_t>(row.name);  // a negative one is large
      if (name >= names.size()) fail_for("spans");
      add(names[name], row);
    });
  }

 private:
  [[noreturn]] void fail_for(const char* table) const {
    fail(Status::data,
         "{}: found no table /{} of this version of reelmesh, expected trace.h5 of a "
         "job",
         path_.string(), table);
  }
  [[noreturn]] void fail_as_damaged(const std::string& name) const {
    fail(Status::data, "{}: /{} cannot be read: the file is damaged", path_.string(), name);
  }

  // Whether a table is a group of columns.
  bool in_columns(const char* table) const {
    return hdf5::is_inside(file_.get(), table, H5O_TYPE_GROUP);
  }

  // The words of an enumeration.
  std::vector<std::string> meanings(const char* column) const {
    const hdf5::Dataset dataset = hdf5::open_dataset(file_.get(), column);
    const auto words = hdf5::read_text(dataset.get(), "flag_meanings", max_meanings);
    if (!words) fail_for("spans");
    std::istringstream stream(*words);
    return {std::istream_iterator<std::string>(stream), {}};
  }

  // The rows of a table of columns in blocks; columns that are not in `table` are 0.
  template <class Row>
  void read_columns(const TableFormat& table, std::int64_t max,
                    const std::function<void(const Row&)>& use) const {
    Shape shape;  // of each column
    for (const Column& column : table.columns) {
      const std::string name = column_path(table, column);
      auto found = hdf5::dataset_shape(file_.get(), name.c_str(), column.type);
      if (!found || found->size() != 1 || found->front() > max ||
          (!shape.empty() && *found != shape)) {
        fail_for(table.name);
      }
      shape = std::move(*found);
    }
    if (shape.empty() || shape.front() == 0) return;
    std::vector<hdf5::Dataset> datasets;
    for (const Column& column : table.columns) {
      const std::string name = column_path(table, column);
      if (!hdf5::has_chunks(file_.get(), name.c_str(), column.type, shape, 0, shape.front())) {
        fail_as_damaged(name);
      }
      datasets.push_back(hdf5::open_dataset(file_.get(), name.c_str()));
    }
    std::vector<Row> rows(static_cast<std::size_t>(std::min(hdf5::max_chunk, shape.front())));
    for (std::int64_t first = 0; first < shape.front(); first += hdf5::max_chunk) {
      const std::int64_t count = std::min(hdf5::max_chunk, shape.front() - first);
      for (std::size_t i = 0; i < datasets.size(); ++i) {
        const Column& column = table.columns[i];
        const std::string values =
            hdf5::read_box(datasets[i].get(), column.type, Box{{first}, {count}});
        const std::size_t size = values.size() / static_cast<std::size_t>(count);
        auto* to = reinterpret_cast<char*>(rows.data()) + column.offset;
        for (std::size_t at = 0; at < values.size(); at += size, to += sizeof(Row)) {
          std::memcpy(to, values.data() + at, size);
        }
      }
      for (std::int64_t i = 0; i < count; ++i) use(rows[static_cast<std::size_t>(i)]);
    }
  }

  // The rows of a table of format 1 in blocks.
  template <class Row>
  void read_rows(const TableFormat& table, std::int64_t max,
                 const std::function<void(const Row&)>& use) const {
    const hdf5::Datatype type = format_1::row_type(table);
    const auto shape = hdf5::dataset_shape(file_.get(), table.name, type.get());
    if (!shape || shape->size() != 1 || shape->front() > max) fail_for(table.name);
    if (shape->front() == 0) return;
    if (!hdf5::is_whole(file_.get(), table.name, type.get(), *shape)) fail_as_damaged(table.name);
    const hdf5::Dataset dataset = hdf5::open_dataset(file_.get(), table.name);
    constexpr std::int64_t block = 1 << 14;
    for (std::int64_t first = 0; first < shape->front(); first += block) {
      const std::int64_t count = std::min(block, shape->front() - first);
      const std::string bytes = hdf5::read_box(dataset.get(), type.get(), Box{{first}, {count}});
      for (std::int64_t i = 0; i < count; ++i) {
        Row row;
        std::memcpy(&row, bytes.data() + static_cast<std::size_t>(i) * sizeof(Row), sizeof(Row));
        use(row);
      }
    }
  }

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
  file.spans(std::ssize(ranks), use);
  return ranks;
}

}  // namespace reelmesh

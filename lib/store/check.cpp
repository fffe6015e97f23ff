#include "store/check.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "store/pieces.hpp"

namespace reelmesh::hdf5 {
namespace {

constexpr hsize_t checksum_bytes = 4;  // Fletcher32, at the end of each chunk

/// The shape of the chunks that the values are stored in; empty if they are in none. Files of
/// format 1 have arrays of one axis in one chunk.
std::optional<Shape> stored_chunk(hid_t creation, const Shape& shape) {
  std::vector<hsize_t> found(shape.size());
  const auto axes = static_cast<int>(found.size());
  if (H5Pget_layout(creation) != H5D_CHUNKED ||
      H5Pget_chunk(creation, axes, found.data()) != axes) {
    return std::nullopt;
  }
  Shape chunk;
  for (const hsize_t extent : found) {
    if (extent > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
    chunk.push_back(static_cast<std::int64_t>(extent));
  }
  if (chunk == chunk_shape(shape) || (shape.size() == 1 && chunk == shape)) return chunk;
  return std::nullopt;
}

/// Whether chunks are deflated; empty if the filters are not those of create_dataset(), in its
/// order.
std::optional<bool> is_deflated(hid_t creation) {
  std::vector<H5Z_filter_t> filters;
  const int count = H5Pget_nfilters(creation);
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, number = 0;
    std::size_t values = 0;
    filters.push_back(H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values, nullptr,
                                     0, nullptr, &number));
  }
  if (filters == std::vector<H5Z_filter_t>{H5Z_FILTER_FLETCHER32}) return false;
  if (filters ==
      std::vector<H5Z_filter_t>{H5Z_FILTER_SHUFFLE, H5Z_FILTER_DEFLATE, H5Z_FILTER_FLETCHER32}) {
    return true;
  }
  return std::nullopt;
}

/// Whether zlib's stream inflates to this many bytes.
bool inflates_to(std::string_view stream, hsize_t expected) {
  if (stream.size() > std::numeric_limits<uInt>::max()) return false;
  z_stream state{};
  if (inflateInit(&state) != Z_OK) return false;
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> owner(&state, &inflateEnd);
  state.next_in = reinterpret_cast<z_const Bytef*>(const_cast<char*>(stream.data()));
  state.avail_in = static_cast<uInt>(stream.size());
  std::array<Bytef, std::size_t{1} << 16> part;
  for (hsize_t bytes = 0; bytes <= expected;) {
    state.next_out = part.data();
    state.avail_out = static_cast<uInt>(part.size());
    const int status = inflate(&state, Z_NO_FLUSH);
    bytes += part.size() - state.avail_out;
    if (status != Z_OK) return status == Z_STREAM_END && bytes == expected;
  }
  return false;
}

/// Whether the stored bytes of a chunk, of `raw` bytes as values, give exactly these. left_out: a
/// bit for each filter that was not applied. HDF5 may leave out deflate, as it is optional.
bool gives(std::string_view stored, std::uint32_t left_out, bool deflate, hsize_t raw) {
  constexpr std::uint32_t deflate_bit = 0b010;  // after shuffle
  if (deflate && left_out == 0) {
    stored.remove_suffix(checksum_bytes);
    return inflates_to(stored, raw);
  }
  return left_out == (deflate ? deflate_bit : 0) && stored.size() == raw + checksum_bytes;
}

/// Whether all values can be read and are those that were written. HDF5 compares the checksums of
/// chunks, but its index of chunks has none: a damaged index leads to wrong or undefined values. So
/// their hash is compared, too.
bool has_values(hid_t dataset, hid_t type, const Shape& shape) {
  const auto expected = read_text(dataset, checksum_name, max_checksum);
  if (!expected) return false;
  // As many indices at a time as take about 4 MiB: a read takes time, too.
  const std::int64_t index_bytes = std::max<std::int64_t>(numel(shape), 1) /
                                   std::max<std::int64_t>(shape[0], 1) *
                                   static_cast<std::int64_t>(H5Tget_size(type));
  const std::int64_t portion = std::max<std::int64_t>((std::int64_t{4} << 20) / index_bytes, 1);
  Box box = whole_box(shape);
  std::vector<std::uint64_t> hashes;
  try {
    for (; box.offset[0] < shape[0]; box.offset[0] += portion) {
      box.extent[0] = std::min(portion, shape[0] - box.offset[0]);
      const auto more = hashes_of_indices(read_box(dataset, type, box), box.extent[0]);
      hashes.insert(hashes.end(), more.begin(), more.end());
    }
  } catch (const Error&) {
    return false;
  }
  return combined(hashes) == *expected;
}

/// A dataset of the file itself; an empty handle if there is none.
Dataset own_dataset(hid_t file, const char* name) {
  if (!is_inside(file, name, H5O_TYPE_DATASET)) return {};
  return Dataset(H5Dopen2(file, name, H5P_DEFAULT));
}

bool is_number(hid_t file, const char* name, double expected) {
  const auto found = read_number(file, name);
  return found && *found == expected;
}

template <class Value>
void write_value(hid_t file, const char* name, const Value& value) {
  if constexpr (std::is_same_v<Value, int>) {
    write_attribute(file, name, std::int64_t{value});
  } else if constexpr (requires { value.text(); }) {
    write_attribute(file, name, value.text());
  } else {
    write_attribute(file, name, value);
  }
}

template <class Value>
void write_value(hid_t file, const char* name, const std::optional<Value>& value) {
  if (value) write_value(file, name, *value);
}

template <class Value>
bool has_attribute(hid_t file, const char* name, const Value& expected) {
  if constexpr (std::is_same_v<Value, std::string>) {
    return has_text(file, name, expected);
  } else if constexpr (std::is_same_v<Value, std::uint64_t>) {
    return read_unsigned(file, name) == expected;
  } else if constexpr (requires { expected.text(); }) {
    return has_text(file, name, expected.text());
  } else {
    return is_number(file, name, static_cast<double>(expected));
  }
}

template <class Value>
bool has_attribute(hid_t file, const char* name, const std::optional<Value>& expected) {
  return expected ? has_attribute(file, name, *expected) : H5Aexists(file, name) == 0;
}

template <class Value>
std::string as_text(const Value& value) {
  if constexpr (std::is_floating_point_v<Value>) {
    return fmt::format("{:a}", value);
  } else if constexpr (requires { value.text(); }) {
    return value.text();
  } else {
    return fmt::format("{}", value);
  }
}

template <class Value>
std::string as_text(const std::optional<Value>& value) {
  return value ? as_text(*value) : "";
}

}  // namespace

File open_if_valid(const std::filesystem::path& path) {
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path, unreadable)) return {};
  try {
    return open_for_reading(path);
  } catch (const Error&) {
    return {};
  }
}

bool is_inside(hid_t file, const char* name, H5O_type_t type) {
  H5L_info_t link;
  H5O_info_t object;
  return H5Lexists(file, name, H5P_DEFAULT) > 0 &&
         H5Lget_info(file, name, &link, H5P_DEFAULT) >= 0 && link.type == H5L_TYPE_HARD &&
         H5Oget_info_by_name2(file, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) >= 0 &&
         object.type == type;
}

std::optional<Shape> dataset_shape(hid_t file, const char* name, hid_t type) {
  const Dataset dataset = own_dataset(file, name);
  if (!dataset) return std::nullopt;
  const Datatype stored(H5Dget_type(dataset.get()));
  if (!stored || H5Tequal(stored.get(), type) <= 0) return std::nullopt;
  const Dataspace space(H5Dget_space(dataset.get()));
  const int axes = space ? H5Sget_simple_extent_ndims(space.get()) : -1;
  if (axes <= 0) return std::nullopt;
  std::vector<hsize_t> dims(static_cast<std::size_t>(axes));
  if (H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr) < 0) return std::nullopt;
  Shape shape;
  for (const hsize_t extent : dims) {
    if (extent > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
    shape.push_back(static_cast<std::int64_t>(extent));
  }
  return shape;
}

bool has_chunks(hid_t file, const char* name, hid_t type, const Shape& shape, std::int64_t first,
                std::int64_t count) {
  if (dataset_shape(file, name, type) != shape) return false;
  const Dataset dataset = own_dataset(file, name);
  const Properties creation(H5Dget_create_plist(dataset.get()));
  if (!creation) return false;
  const std::optional<Shape> stored_in = stored_chunk(creation.get(), shape);
  if (!stored_in) return false;
  const Shape& chunk = *stored_in;
  const std::optional<bool> deflate = is_deflated(creation.get());
  hsize_t free_bytes = 0;  // of the file: those that are not in an earlier chunk
  if (!deflate || H5Fget_filesize(file, &free_bytes) < 0) return false;
  const hsize_t raw = static_cast<hsize_t>(numel(chunk)) * H5Tget_size(type);
  const hsize_t max_bytes = raw + checksum_bytes + (*deflate ? raw / 500 + 64 : 0);
  std::vector<hsize_t> begin(shape.size(), 0);
  for (std::int64_t index = first; index < first + count; index += chunk[0]) {
    begin[0] = static_cast<hsize_t>(index);
    hsize_t bytes = 0;  // stays if the chunk is missing
    if (H5Dget_chunk_storage_size(dataset.get(), begin.data(), &bytes) < 0 ||
        bytes <= checksum_bytes || bytes > max_bytes || bytes > free_bytes) {
      return false;
    }
    free_bytes -= bytes;
    std::string stored(bytes, '\0');
    std::uint32_t left_out = 0;
    if (H5Dread_chunk(dataset.get(), H5P_DEFAULT, begin.data(), &left_out, stored.data()) < 0 ||
        !gives(stored, left_out, *deflate, raw)) {
      return false;
    }
  }
  return true;
}

bool holds(hid_t file, const char* name, hid_t type, const Shape& shape) {
  return !shape.empty() && has_chunks(file, name, type, shape, 0, shape[0]) &&
         has_values(own_dataset(file, name).get(), type, shape);
}

bool is_whole(hid_t file, const char* name, hid_t type, const Shape& shape) {
  if (dataset_shape(file, name, type) != shape) return false;
  const Dataset dataset = own_dataset(file, name);
  const Properties creation(H5Dget_create_plist(dataset.get()));
  if (!creation || H5Pget_layout(creation.get()) != H5D_CONTIGUOUS ||
      H5Pget_external_count(creation.get()) != 0) {
    return false;
  }
  const haddr_t begin = H5Dget_offset(dataset.get());
  const hsize_t bytes = static_cast<hsize_t>(numel(shape)) * H5Tget_size(type);
  hsize_t file_bytes = 0;
  return begin != HADDR_UNDEF && H5Fget_filesize(file, &file_bytes) >= 0 && bytes <= file_bytes &&
         begin <= file_bytes - bytes && H5Dget_storage_size(dataset.get()) == bytes;
}

bool holds_whole(hid_t file, const char* name, hid_t type, const Shape& shape) {
  return is_whole(file, name, type, shape) &&
         has_values(own_dataset(file, name).get(), type, shape);
}

void write_record(hid_t file, const ClipRecord& record) {
  write_attribute(file, "Conventions", "CF-1.8");
  record.for_each_attribute(
      [&](const char* name, const auto& value, Compared) { write_value(file, name, value); });
}

bool is_known_version(hid_t file) {
  const auto version = read_unsigned(file, "format_version");
  return version && *version <= static_cast<std::uint64_t>(format_version);
}

bool has_text(hid_t object, const char* name, const std::string& expected) {
  const auto found = read_text(object, name, std::max<std::size_t>(expected.size(), 1));
  return found && *found == expected;
}

bool has_record(hid_t file, const ClipRecord& expected) {
  bool same = is_known_version(file);
  expected.for_each_attribute([&](const char* name, const auto& value, Compared compared) {
    same = same && (compared == Compared::no || has_attribute(file, name, value));
  });
  return same;
}

std::vector<std::string> compared_texts(const ClipRecord& record) {
  std::vector<std::string> texts;
  record.for_each_attribute([&](const char*, const auto& value, Compared compared) {
    if (compared == Compared::yes) texts.push_back(as_text(value));
  });
  return texts;
}

}  // namespace reelmesh::hdf5

#include "store/check.hpp"

#include <zlib.h>

#include <array>
#include <limits>
#include <memory>

#include "base/hash.hpp"
#include "store/pieces.hpp"

namespace reelmesh::hdf5 {
namespace {

/// The number of indices of the first axis in a chunk, if the dataset is stored in chunks of whole
/// indices, each with a checksum; otherwise 0.
hsize_t indices_of_chunk(hid_t creation, const Shape& shape) {
  unsigned flags = 0, number = 0;
  std::size_t values = 0;
  std::vector<hsize_t> chunk(shape.size());
  if (H5Pget_layout(creation) != H5D_CHUNKED ||
      H5Pget_filter_by_id2(creation, H5Z_FILTER_FLETCHER32, &flags, &values, nullptr, 0, nullptr,
                           &number) < 0 ||
      H5Pget_chunk(creation, static_cast<int>(chunk.size()), chunk.data()) !=
          static_cast<int>(chunk.size())) {
    return 0;
  }
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const auto extent = static_cast<hsize_t>(shape[axis]);
    if (axis == 0 ? chunk[axis] > extent : chunk[axis] != extent) return 0;
  }
  return chunk[0];
}

/// The place of deflate among the filters of a dataset; −1: it has none; empty if it has others
/// than create_dataset() gives.
std::optional<int> place_of_deflate(hid_t creation) {
  std::optional<int> place = -1;
  const int filters = H5Pget_nfilters(creation);
  if (filters < 0) return std::nullopt;
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, number = 0;
    std::size_t values = 0;
    const H5Z_filter_t filter = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values,
                                               nullptr, 0, nullptr, &number);
    if (filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_FLETCHER32) continue;
    if (filter != H5Z_FILTER_DEFLATE || *place >= 0) return std::nullopt;
    place = i;
  }
  return place;
}

/// Whether zlib's stream, which other bytes may follow, inflates to at most `limit` bytes.
bool inflates_within(std::string& stream, hsize_t limit) {
  if (stream.size() > std::numeric_limits<uInt>::max()) return false;
  z_stream state{};
  if (inflateInit(&state) != Z_OK) return false;
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> owner(&state, &inflateEnd);
  state.next_in = reinterpret_cast<Bytef*>(stream.data());
  state.avail_in = static_cast<uInt>(stream.size());
  std::array<Bytef, std::size_t{1} << 16> part;
  for (hsize_t bytes = 0; bytes <= limit;) {
    state.next_out = part.data();
    state.avail_out = static_cast<uInt>(part.size());
    const int status = inflate(&state, Z_NO_FLUSH);
    bytes += part.size() - state.avail_out;
    if (status != Z_OK) return status == Z_STREAM_END && bytes <= limit;
  }
  return false;
}

/// Whether each chunk, of this many indices, has no more bytes than it may have, in the file and
/// inflated: HDF5 allocates what the index of chunks says, and inflates whatever a chunk contains,
/// which may be a thousand times as much.
bool has_chunks(hid_t dataset, hid_t creation, hid_t type, hsize_t indices, const Shape& shape) {
  const File file(H5Iget_file_id(dataset));
  hsize_t file_bytes = 0;
  if (!file || H5Fget_filesize(file.get(), &file_bytes) < 0) return false;
  const std::optional<int> deflate = place_of_deflate(creation);
  if (!deflate) return false;
  constexpr hsize_t checksum_bytes = 4;
  hsize_t limit = indices * H5Tget_size(type);
  for (std::size_t axis = 1; axis < shape.size(); ++axis) {
    limit *= static_cast<hsize_t>(shape[axis]);
  }
  limit += checksum_bytes;
  std::vector<hsize_t> begin(shape.size(), 0);
  for (; begin[0] < static_cast<hsize_t>(shape[0]); begin[0] += indices) {
    hsize_t bytes = 0;
    // What cannot be compressed is stored as it is.
    if (H5Dget_chunk_storage_size(dataset, begin.data(), &bytes) < 0 || bytes > file_bytes ||
        bytes > limit + limit / 500 + 64) {
      return false;
    }
    if (*deflate < 0 || bytes == 0) continue;
    std::string stored(bytes, '\0');
    std::uint32_t left_out = 0;  // a bit for each filter
    if (H5Dread_chunk(dataset, H5P_DEFAULT, begin.data(), &left_out, stored.data()) < 0) {
      return false;
    }
    const bool deflated = (left_out >> *deflate & 1U) == 0;
    if (deflated && !inflates_within(stored, limit)) return false;
  }
  return true;
}

/// Whether all values can be read and are those that were written. HDF5 compares the checksums of
/// chunks, but its index of chunks has none: a damaged index leads to wrong or undefined values. So
/// their hash is compared, too.
bool has_values(hid_t dataset, hid_t type, const Shape& shape) {
  constexpr std::size_t max_checksum = 64;
  const auto expected = read_text(dataset, checksum_name, max_checksum);
  if (!expected) return false;
  Box box = whole_box(shape);
  box.extent[0] = 1;
  std::vector<std::uint64_t> hashes;
  try {
    for (; box.offset[0] < shape[0]; ++box.offset[0]) {
      hashes.push_back(hash_of(read_box(dataset, type, box)));
    }
  } catch (const Error&) {
    return false;
  }
  return combined(hashes) == *expected;
}

/// A dataset of the file itself; an empty handle if there is none: links are not followed.
Dataset own_dataset(hid_t file, const char* name) {
  H5L_info_t link;
  if (H5Lexists(file, name, H5P_DEFAULT) <= 0) return {};
  if (H5Lget_info(file, name, &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD) return {};
  H5O_info_t object;
  if (H5Oget_info_by_name2(file, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) < 0) return {};
  if (object.type != H5O_TYPE_DATASET) return {};
  return Dataset(H5Dopen2(file, name, H5P_DEFAULT));
}

bool is_number(hid_t file, const char* name, double expected) {
  const auto found = read_number(file, name);
  return found && *found == expected;
}

/// Whether the clip begins from the same bytes, or from no file, as files without these attributes.
bool has_input(hid_t file, const ClipRecord& expected) {
  if (expected.input_hash.empty()) return H5Aexists(file, "input_hash") == 0;
  if (!has_text(file, "input_hash", expected.input_hash)) return false;
  if (expected.input_frames) {
    const auto frames = static_cast<double>(*expected.input_frames);
    if (!is_number(file, "input_frames", frames)) return false;
  }
  return !expected.strength || is_number(file, "strength", *expected.strength);
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

std::optional<Shape> shape_of(hid_t file, const char* name, hid_t type) {
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

bool holds(hid_t file, const char* name, hid_t type, const Shape& shape) {
  if (shape_of(file, name, type) != shape) return false;
  const Dataset dataset = own_dataset(file, name);
  const Properties creation(H5Dget_create_plist(dataset.get()));
  if (!creation) return false;
  const hsize_t indices = indices_of_chunk(creation.get(), shape);
  return indices > 0 && has_chunks(dataset.get(), creation.get(), type, indices, shape) &&
         has_values(dataset.get(), type, shape);
}

void write_record(hid_t file, const ClipRecord& record) {
  write_attribute(file, "Conventions", "CF-1.8");
  write_attribute(file, "prompt", record.prompt);
  write_attribute(file, "negative_prompt", record.negative_prompt);
  write_attribute(file, "seed", record.seed);
  write_attribute(file, "steps", std::int64_t{record.steps});
  write_attribute(file, "guidance", record.guidance);
  write_attribute(file, "fps", record.fps);
  write_attribute(file, "model", record.model);
  write_attribute(file, "scheduler", record.scheduler);
  write_attribute(file, "dtype", record.dtype);
  write_attribute(file, "fingerprint", record.fingerprint);
  write_attribute(file, "layout", record.layout);
  write_attribute(file, "wall_seconds", record.wall_seconds);
  if (!record.image.empty()) write_attribute(file, "image", record.image);
  if (!record.video.empty()) write_attribute(file, "video", record.video);
  if (!record.input_hash.empty()) write_attribute(file, "input_hash", record.input_hash);
  if (record.input_frames) write_attribute(file, "input_frames", *record.input_frames);
  if (record.strength) write_attribute(file, "strength", *record.strength);
}

bool is_known_version(hid_t file) {
  if (H5Aexists(file, "format_version") == 0) return true;
  const auto version = read_unsigned(file, "format_version");
  return version && *version <= static_cast<std::uint64_t>(format_version);
}

bool has_text(hid_t object, const char* name, const std::string& expected) {
  const auto found = read_text(object, name, std::max<std::size_t>(expected.size(), 1));
  return found && *found == expected;
}

bool has_record(hid_t file, const ClipRecord& expected) {
  return is_known_version(file) && has_text(file, "prompt", expected.prompt) &&
         has_text(file, "negative_prompt", expected.negative_prompt) &&
         read_unsigned(file, "seed") == expected.seed && is_number(file, "steps", expected.steps) &&
         is_number(file, "guidance", expected.guidance) && is_number(file, "fps", expected.fps) &&
         has_text(file, "scheduler", expected.scheduler) &&
         has_text(file, "dtype", expected.dtype) &&
         has_text(file, "fingerprint", expected.fingerprint) && has_input(file, expected);
}

}  // namespace reelmesh::hdf5

// Checks whether a file, possibly damaged or from another program, is a complete clip.
#include <cstring>

#include "store/clip.hpp"
#include "store/hdf5.hpp"

namespace reelmesh {
namespace {

/// A chunk that was never written would read as undefined values.
bool all_chunks_exist(hid_t dataset, hid_t creation, hid_t space, const Shape& shape) {
  std::vector<hsize_t> chunk(shape.size());
  const int axes = static_cast<int>(shape.size());
  if (H5Pget_layout(creation) != H5D_CHUNKED ||
      H5Pget_chunk(creation, axes, chunk.data()) != axes) {
    return false;
  }
  hsize_t expected = 1, found = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    expected *= (static_cast<hsize_t>(shape[axis]) + chunk[axis] - 1) / chunk[axis];
  }
  return H5Dget_num_chunks(dataset, space, &found) >= 0 && found == expected;
}

/// Whether all values can be read; HDF5 compares the checksums of their chunks.
bool is_readable(hid_t dataset, hid_t type, const Shape& shape) {
  Box box = whole_box(shape);
  box.extent[0] = 1;
  try {
    for (; box.offset[0] < shape[0]; ++box.offset[0]) hdf5::read_box(dataset, type, box);
  } catch (const Error&) {
    return false;
  }
  return true;
}

/// Whether `name` is an array of `shape` and `type` whose chunks are all in this file itself.
bool holds(hid_t file, const char* name, hid_t type, const Shape& shape) {
  H5L_info_t link;
  if (H5Lexists(file, name, H5P_DEFAULT) <= 0) return false;
  if (H5Lget_info(file, name, &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD) return false;
  H5O_info_t object;
  if (H5Oget_info_by_name2(file, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) < 0) return false;
  if (object.type != H5O_TYPE_DATASET) return false;

  const hdf5::Dataset dataset(H5Dopen2(file, name, H5P_DEFAULT));
  if (!dataset) return false;
  const hdf5::Properties creation(H5Dget_create_plist(dataset.get()));
  if (!creation) return false;
  const hdf5::Datatype stored(H5Dget_type(dataset.get()));
  if (!stored || H5Tequal(stored.get(), type) <= 0) return false;
  const hdf5::Dataspace space(H5Dget_space(dataset.get()));
  if (!space || H5Sget_simple_extent_ndims(space.get()) != static_cast<int>(shape.size())) {
    return false;
  }
  std::vector<hsize_t> dims(shape.size());
  if (H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr) < 0) return false;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (dims[axis] != static_cast<hsize_t>(shape[axis])) return false;
  }
  return all_chunks_exist(dataset.get(), creation.get(), space.get(), shape) &&
         is_readable(dataset.get(), type, shape);
}

// Equal prompts can have different token ids: ids may be given by the user, and prompts may be
// cleaned or not.
bool holds_ids(hid_t file, const std::vector<std::int32_t>& ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  if (ids.empty()) return true;
  if (!holds(file, "token_ids", H5T_NATIVE_INT32, {count})) return false;
  const hdf5::Dataset dataset(H5Dopen2(file, "token_ids", H5P_DEFAULT));
  try {
    const std::string found = hdf5::read_box(dataset.get(), H5T_NATIVE_INT32, {{0}, {count}});
    return std::memcmp(found.data(), ids.data(), found.size()) == 0;
  } catch (const Error&) {
    return false;  // damaged
  }
}

bool is_text(hid_t file, const char* name, const std::string& expected) {
  const auto found = hdf5::read_text(file, name, std::max<std::size_t>(expected.size(), 1));
  return found && *found == expected;
}

bool is_number(hid_t file, const char* name, double expected) {
  const auto found = hdf5::read_number(file, name);
  return found && *found == expected;
}

bool same_origin(hid_t file, const ClipRecord& expected) {
  return is_text(file, "prompt", expected.prompt) &&
         is_text(file, "negative_prompt", expected.negative_prompt) &&
         hdf5::read_unsigned(file, "seed") == expected.seed &&
         is_number(file, "steps", expected.steps) &&
         is_number(file, "guidance", expected.guidance) && is_number(file, "fps", expected.fps) &&
         is_text(file, "scheduler", expected.scheduler) && is_text(file, "dtype", expected.dtype) &&
         is_text(file, "fingerprint", expected.fingerprint);
}

}  // namespace

bool clip_complete(const std::filesystem::path& path, const ClipRecord& expected,
                   const ClipShapes& shapes) {
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path, unreadable)) return false;
  hdf5::File file;
  try {
    file = hdf5::open_for_reading(path);
  } catch (const Error&) {
    return false;  // damaged, or not an HDF5 file
  }
  const auto needed = [&](const char* name, hid_t type, const Shape& shape) {
    return shape.empty() || holds(file.get(), name, type, shape);
  };
  return same_origin(file.get(), expected) && needed("video", H5T_NATIVE_UINT8, shapes.video) &&
         needed("latents", H5T_NATIVE_FLOAT, shapes.latents) &&
         needed("prompt_embeds", H5T_NATIVE_FLOAT, shapes.prompt_embeds) &&
         needed("negative_prompt_embeds", H5T_NATIVE_FLOAT, shapes.negative_prompt_embeds) &&
         holds_ids(file.get(), expected.token_ids);
}

}  // namespace reelmesh

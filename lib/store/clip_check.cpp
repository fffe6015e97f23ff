// Checks whether a file, possibly damaged or from another program, is a complete clip.
#include <algorithm>
#include <cstring>

#include "store/check.hpp"
#include "store/clip_arrays.hpp"

namespace reelmesh {
namespace {

// Equal prompts can have different token ids: ids may be given by the user, and prompts may be
// cleaned or not.
bool holds_ids(hid_t file, const std::vector<std::int32_t>& ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  if (ids.empty()) return true;
  if (!hdf5::holds(file, "token_ids", H5T_NATIVE_INT32, {count})) return false;
  const hdf5::Dataset dataset(H5Dopen2(file, "token_ids", H5P_DEFAULT));
  try {
    const std::string found = hdf5::read_box(dataset.get(), H5T_NATIVE_INT32, {{0}, {count}});
    return std::memcmp(found.data(), ids.data(), found.size()) == 0;
  } catch (const Error&) {
    return false;  // damaged
  }
}

}  // namespace

bool clip_complete(const std::filesystem::path& path, const ClipRecord& expected,
                   const ClipShapes& shapes) {
  const hdf5::File file = hdf5::open_if_valid(path);
  if (!file) return false;
  const auto has = [&](const ClipArray& array) {
    const Shape& shape = shapes.*array.shape;
    return shape.empty() || hdf5::holds(file.get(), array.name, array.type(), shape);
  };
  return hdf5::has_record(file.get(), expected) && std::ranges::all_of(clip_arrays, has) &&
         holds_ids(file.get(), expected.token_ids);
}

}  // namespace reelmesh

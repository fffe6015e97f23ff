// Checks whether a file, possibly damaged or from another program, is a complete clip.
#include <algorithm>

#include "store/check.hpp"
#include "store/clip_arrays.hpp"

namespace reelmesh {
namespace {

// Equal prompts can have different token ids: ids may be given by the user, and prompts may be
// cleaned or not.
bool holds_ids(hid_t file, const std::vector<std::int32_t>& ids) {
  if (ids.empty()) return true;
  const Shape shape{std::ssize(ids)};
  if (!hdf5::holds(file, "token_ids", H5T_NATIVE_INT32, shape)) return false;
  try {
    const Tensor found = hdf5::read_values(file, "token_ids", DType::int32, whole_box(shape));
    return std::ranges::equal(found.span<std::int32_t>(), ids);
  } catch (const Error&) {
    return false;  // damaged
  }
}

bool holds_clip(const std::filesystem::path& path, const ClipRecord& expected,
                const ClipShapes& shapes, bool is_preview) {
  const hdf5::File file = hdf5::open_if_valid(path);
  if (!file) return false;
  return (H5Aexists(file.get(), stopped_after_name) > 0) == is_preview &&
         hdf5::has_record(file.get(), expected) &&
         holds_arrays(file.get(), expected_arrays(clip_arrays, shapes)) &&
         holds_ids(file.get(), expected.token_ids);
}

}  // namespace

bool clip_complete(const std::filesystem::path& path, const ClipRecord& expected,
                   const ClipShapes& shapes) {
  return holds_clip(path, expected, shapes, false);
}

bool is_preview(const std::filesystem::path& path, const ClipRecord& expected,
                const ClipShapes& shapes) {
  return holds_clip(path, expected, shapes, true);
}

}  // namespace reelmesh

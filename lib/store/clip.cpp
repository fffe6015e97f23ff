#include "store/clip.hpp"

#include <deque>

#include "base/units.hpp"
#include "comm/together.hpp"
#include "layout/relayout.hpp"
#include "store/check.hpp"
#include "store/clip_arrays.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

/// An array of the file, and this rank's part of it.
struct Array {
  Piece piece;
  const char* meaning;
  std::vector<Axis> axes;
  Shape shape;
  Shape chunk;
  std::string checksum;  // on rank 0
};

Array make_array(const ClipArray& array, const Sharded& x) {
  const Shape& shape = x.layout.global();
  expect(shape.size() == array.axes.size() && numel(shape) > 0, "{} has shape {}", array.name,
         shape);
  expect(x.local.empty() || x.local.dtype() == array.dtype, "{} is {}, expected {}", array.name,
         name_of(x.local.dtype()), name_of(array.dtype));
  Shape chunk = shape;
  chunk[0] = 1;
  return {{array.name, array.type(), x.box(), x.local.raw()},
          array.meaning,
          array.axes,
          shape,
          chunk,
          {}};
}

Array make_token_ids(const comm::Group& group, const std::vector<std::int32_t>& ids) {
  const Shape shape{static_cast<std::int64_t>(ids.size())};
  const Box box = group.rank() == 0 ? whole_box(shape) : Box{{0}, {0}};
  return {{"token_ids", H5T_NATIVE_INT32, box, ids.data()},
          "tokens of the prompt",
          {axes::token},
          shape,
          shape,
          {}};
}

/// Writes everything in the file except the values of the arrays.
void make_structure(hid_t file, const ClipRecord& record, const std::vector<Array>& arrays) {
  hdf5::write_title(file, fmt::format("clip {} of reelmesh", record.index));
  hdf5::write_record(file, record);
  Scales scales(file);
  for (const Array& array : arrays) {
    const hdf5::Dataset dataset = hdf5::create_dataset(file, array.piece.name.c_str(),
                                                       array.piece.type, array.shape, array.chunk);
    hdf5::describe(dataset.get(), array.meaning, "1");
    hdf5::write_attribute(dataset.get(), checksum_name, array.checksum);
    scales.attach(dataset.get(), array.axes, array.shape);
    if (array.axes.front().name == axes::frame.name) {
      scales.add_time(dataset.get(), array.shape[0], record.settings.fps.value_or(0));
    }
  }
}

/// An upper bound of the bytes that the values take: deflate adds less than 1 % to incompressible
/// data, and each chunk has a checksum, an index entry, and a placeholder that HDF5 writes first.
std::int64_t bytes_at_most(const std::vector<Array>& arrays) {
  std::int64_t bytes = std::int64_t{1} << 20;
  for (const Array& array : arrays) {
    const auto size = static_cast<std::int64_t>(H5Tget_size(array.piece.type));
    const std::int64_t raw = checked_product(numel(array.shape), size, array.piece.name);
    bytes += raw;
    bytes += raw / 50 + 4096 * array.shape[0];
  }
  return bytes;
}

}  // namespace

std::filesystem::path clip_path(const std::filesystem::path& folder, int index) {
  const std::filesystem::path clips = folder / "clips";
  const std::string name = fmt::format("{:06}.h5", index);
  if (index < first_clip_in_folder) return clips / name;
  return clips / fmt::format("{:03}", index / clips_of_folder) / name;
}

void write_clip(const comm::Group& group, const std::filesystem::path& folder,
                const ClipRecord& record, const ClipArrays& values, bool replace) {
  std::vector<Array> arrays;
  std::deque<Sharded> moved;  // what `arrays` points to
  for (const ClipArray& array : clip_arrays) {
    const std::optional<Sharded>& x = values.*array.values;
    if (!x) continue;
    moved.push_back(relayout(*x, Layout::cut(x->layout.global(), 0, group.size())));
    arrays.push_back(make_array(array, moved.back()));
  }
  if (!record.token_ids.empty()) arrays.push_back(make_token_ids(group, record.token_ids));
  for (Array& array : arrays) array.checksum = piece_checksum(group, array.piece);

  const std::filesystem::path path = clip_path(folder, record.index);
  const auto structure = [&](hid_t file) { make_structure(file, record, arrays); };
  std::vector<Piece> pieces;
  for (const Array& array : arrays) pieces.push_back(array.piece);
  comm::run_collectively(group, [&] {
    if (group.rank() != 0) return;
    require(replace || !std::filesystem::exists(path), Status::cannot_create,
            "{} exists already; use --output.if-exists replace to overwrite it", path.string());
    std::error_code error;  // without the folder the file cannot be created, which says why
    if (record.index >= first_clip_in_folder) {
      std::filesystem::create_directory(path.parent_path(), error);
    }
  });
  write_pieces(group, path, structure, bytes_at_most(arrays), pieces);
}

}  // namespace reelmesh

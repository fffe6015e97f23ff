#include "store/arrays.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "layout/relayout.hpp"
#include "store/check.hpp"
#include "store/pieces.hpp"

namespace reelmesh {
namespace {

/// As write_pieces takes it. An array of one axis is one chunk.
Layout layout_in_file(const Shape& shape, hdf5::Storage storage, int ranks) {
  return storage != hdf5::Storage::whole && shape.size() == 1 ? Layout::on_one_rank(shape, ranks, 0)
                                                              : Layout::cut(shape, 0, ranks);
}

/// An upper bound of the bytes that the chunks of an array take: deflate adds less than 1 % to
/// incompressible data, and each chunk has a checksum, an index entry, and a placeholder that HDF5
/// writes first.
std::int64_t max_chunk_bytes(const StoredArray& array) {
  const Shape& shape = array.values.layout.global();
  const std::int64_t raw = checked_product(numel(shape), size_of(array.dtype), array.name);
  return raw + raw / 50 + 4096 * shape[0];
}

}  // namespace

void write_arrays(
    const comm::Group& group, const std::filesystem::path& path, hdf5::Storage storage,
    const std::vector<StoredArray>& arrays,
    const std::function<void(hid_t file, const Checksums& arrays)>& write_attributes) {
  std::vector<Sharded> moved;  // what `pieces` points to
  std::vector<Piece> pieces;
  Checksums checksums;
  std::int64_t chunk_bytes = std::int64_t{1} << 20;
  for (const StoredArray& array : arrays) {
    const Shape& shape = array.values.layout.global();
    require_dense(group, array.name, array.values, array.dtype);
    expect(array.axes.empty() || array.axes.size() == shape.size(), "array {} has {} axes and {}",
           array.name, array.axes.size(), to_string(shape));
    moved.push_back(relayout(array.values, layout_in_file(shape, storage, group.size())));
    pieces.push_back({array.name, hdf5::native_type(array.dtype), storage, moved.back().box(),
                      moved.back().local.raw()});
    checksums.emplace_back(array.name, piece_checksum(group, pieces.back()));
    chunk_bytes += max_chunk_bytes(array);
  }
  const auto structure = [&](hid_t file) {
    write_attributes(file, checksums);
    Scales scales(file);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const StoredArray& array = arrays[i];
      const Shape& shape = array.values.layout.global();
      const hdf5::Dataset dataset =
          hdf5::create_dataset(file, array.name.c_str(), pieces[i].type, shape, storage);
      hdf5::describe(dataset.get(), array.meaning, "1");
      hdf5::write_attribute(dataset.get(), checksum_name, checksums[i].second);
      scales.attach(dataset.get(), array.axes, shape);
      if (array.fps) scales.add_time(dataset.get(), shape[0], *array.fps);
    }
  };
  write_pieces(group, path, structure, storage == hdf5::Storage::whole ? 0 : chunk_bytes, pieces);
}

void require_dense(const comm::Group& group, const std::string& name, const Sharded& values,
                   DType dtype) {
  const Shape& shape = values.layout.global();
  expect(!shape.empty() && numel(shape) > 0 && name.find('/') == name.npos &&
             values.layout.ranks() == group.size(),
         "array {} {} cannot be stored by {} ranks", name, to_string(shape), group.size());
  const Tensor& local = values.local;
  expect(values.box().empty() || (local.dtype() == dtype && local.numel() == values.box().numel()),
         "array {} has {} {}, expected {} {}", name, name_of(local.dtype()),
         to_string(local.shape()), name_of(dtype), to_string(values.box()));
}

bool holds_arrays(hid_t file, const std::vector<ExpectedArray>& arrays) {
  return std::ranges::all_of(arrays, [&](const ExpectedArray& array) {
    return hdf5::holds(file, array.name.c_str(), hdf5::native_type(array.dtype), array.shape);
  });
}

std::string checksum_of_all(std::vector<std::string> texts, const Checksums& arrays) {
  for (const auto& [name, checksum] : arrays) texts.insert(texts.end(), {name, checksum});
  return texts_checksum({texts.begin(), texts.end()});
}

bool has_checksum_of_all(hid_t file, const std::vector<std::string>& texts,
                         const std::vector<ExpectedArray>& arrays) {
  Checksums checksums;
  for (const ExpectedArray& array : arrays) {
    const hdf5::Dataset dataset = hdf5::open_dataset(file, array.name.c_str());
    checksums.emplace_back(
        array.name, hdf5::read_text(dataset.get(), checksum_name, max_checksum).value_or(""));
  }
  return hdf5::has_text(file, checksum_name, checksum_of_all(texts, checksums));
}

}  // namespace reelmesh

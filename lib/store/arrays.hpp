#pragma once
// HDF5 files of named arrays that are sharded over the ranks of a group: clips, restart files,
// states of a training and encoded samples. The file has a checksum of the values of each array.
// HDF5 has no checksums of attributes, so files whose attributes are read back have a checksum of
// these, too.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layout/sharded.hpp"
#include "store/axes.hpp"

namespace reelmesh {

/// Describes an array of a kind of file, once for writing, checking and reading. Shapes: a class
/// with the shape of each array; empty for those that a file does not have.
template <class Shapes>
struct ArrayKind {
  const char* name;     ///< of the dataset
  const char* meaning;  ///< its attribute long_name
  Shape Shapes::*shape;
  DType dtype = DType::float32;
  std::vector<Axis> axes = {};  ///< whose dimension scales it has
};
/// The same for files whose arrays are the members of Of<Value>: shapes, or values.
template <template <class> class Of>
struct MemberArray : ArrayKind<Of<Shape>> {
  std::optional<Sharded> Of<std::optional<Sharded>>::*values;
};

/// An array that is written.
struct StoredArray {
  std::string name;     ///< of the dataset, without '/'
  const char* meaning;  ///< its attribute long_name
  Sharded values;       ///< on the host, a partition or replicated, none of its axes empty
  DType dtype = DType::float32;
  std::vector<Axis> axes = {};     ///< whose dimension scales it gets
  std::optional<double> fps = {};  ///< of a video, which gets the coordinate `time`
};

/// The checksum of the values of each array, by its name.
using Checksums = std::vector<std::pair<std::string, std::string>>;

/// Writes `path` from all ranks of `group`, which hold the arrays, as write_pieces does: under a
/// temporary name, flushed to disk, read back and compared, and then renamed, which replaces an
/// earlier file. write_attributes: those of the file, on rank 0, which alone has the checksums.
/// Arrays are moved to whole indices of the first axis first: each has a hash of its own, and a
/// chunk is written by one rank. Collective; errors as write_pieces.
void write_arrays(const comm::Group& group, const std::filesystem::path& path,
                  hdf5::Storage storage, const std::vector<StoredArray>& arrays,
                  const std::function<void(hid_t file, const Checksums& arrays)>& write_attributes);

/// Error(internal) unless this rank's values are of this type and dense in its box.
void require_dense(const comm::Group& group, const std::string& name, const Sharded& values,
                   DType dtype = DType::float32);

/// An array that a file should have.
struct ExpectedArray {
  std::string name;
  Shape shape;
  DType dtype = DType::float32;
};

/// Those of a file with these kinds of arrays in these shapes.
template <class Shapes>
std::vector<ExpectedArray> expected_arrays(const auto& kinds, const Shapes& shapes) {
  std::vector<ExpectedArray> arrays;
  for (const ArrayKind<Shapes>& kind : kinds) {
    const Shape& shape = shapes.*kind.shape;
    if (!shape.empty()) arrays.push_back({kind.name, shape, kind.dtype});
  }
  return arrays;
}

/// Whether a file that may be damaged has all of them in chunks, with the values that were written.
bool holds_arrays(hid_t file, const std::vector<ExpectedArray>& arrays);

/// A hash of the attributes of a file that are read back, as texts, and of the checksums of its
/// arrays.
std::string checksum_of_all(std::vector<std::string> texts, const Checksums& arrays);
/// Whether the attribute `checksum` of a file, which must have arrays of these names, is that hash.
bool has_checksum_of_all(hid_t file, const std::vector<std::string>& texts,
                         const std::vector<ExpectedArray>& arrays);

}  // namespace reelmesh

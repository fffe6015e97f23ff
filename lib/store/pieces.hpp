#pragma once
// Arrays of one file, each rank its boxes: how the results of a group reach a file.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "store/hdf5.hpp"

namespace reelmesh {

/// What one rank writes of a dataset.
struct Piece {
  std::string name;    ///< of the dataset
  hid_t type;          ///< of one element in memory and in the file
  Box box;             ///< empty where this rank has nothing
  const void* values;  ///< dense in the shape of the box
};

/// Writes `path` from all ranks of `group` and publishes it. `make_structure`, run by the first
/// rank alone, puts everything but the values into the new file, so that the ranks together do no
/// more than write values. `reserve` is what these take at most on the disk; the space is reserved
/// first because HDF5 1.10 cannot close a file in good order on a disk that is full. Every rank
/// names the same datasets in the same order. After writing, each rank reads its boxes again and
/// compares, since an MPI-IO layer may lose data without a word; only then does the file get its
/// name.
///
/// Collective. On failure nothing is left behind and all ranks throw the same error:
/// Error(cannot_create) or Error(io).
void write_pieces(const comm::Group& group, const std::filesystem::path& path,
                  const std::function<void(hid_t file)>& make_structure, std::int64_t reserve,
                  const std::vector<Piece>& pieces);

}  // namespace reelmesh

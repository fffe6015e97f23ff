#pragma once
// Writes the arrays of one file in parallel: each rank writes its boxes.
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/table.hpp"

namespace reelmesh {

/// The part of a dataset, or of all columns of a table, that one rank writes.
struct Piece {
  std::string name;  ///< of the dataset
  hid_t type;        ///< of an element in memory and in the file
  hdf5::Storage storage;
  Box box;             ///< empty if this rank has nothing to write
  const void* values;  ///< dense in the shape of the box
  /// Instead of `values`, on all ranks: → the values of `count` indices of the first axis,
  /// beginning with the box's index `first`. Called twice for each, with a bounded number of bytes.
  std::function<std::string(std::int64_t first, std::int64_t count)> read;
  /// Instead of `name` and `type`: the values are rows of this table, which has only numbers.
  const TableFormat* table = nullptr;
};

/// The hash of each index of the first axis, from the bytes of `indices` of them.
std::vector<std::uint64_t> hashes_of_indices(std::string_view bytes, std::int64_t indices);

/// A hash of the values of a dataset whose pieces are whole indices of the first axis, in rank
/// order: of the hashes of each index. The text is on rank 0, empty elsewhere. Collective.
std::string piece_checksum(const comm::Group& group, const Piece& piece);
/// The attribute with a checksum: of a dataset, that of its values; of a file, that of the texts
/// that are read from it (checksum_of_job), since HDF5 stores texts without checksums.
inline constexpr const char* checksum_name = "checksum";
inline constexpr std::size_t max_checksum = 64;  ///< characters
/// A hash of these texts, as text.
std::string texts_checksum(const std::vector<std::string_view>& texts);
/// The hash of the hashes of all indices, as text.
std::string combined(std::span<const std::uint64_t> hashes);

/// Writes `path` from all ranks of `group`. First rank 0 alone calls `make_structure`, which makes
/// everything except the values. `chunk_bytes`: an upper bound of the bytes that chunks take on
/// disk. All space is reserved first, because HDF5 1.10 cannot close a file properly on a full
/// disk. Boxes are of whole indices of the first axis, and of whole chunks except at the end. Every
/// rank passes the same datasets in the same order, one alone also several pieces of a dataset.
///
/// No rank waits for another within HDF5 or MPI-IO, where one that fails would leave the others
/// waiting for ever: values of a contiguous dataset are written by each rank for itself, at their
/// place in the file; chunks are filtered by the ranks that have them and written by rank 0. After
/// writing, each rank reads its boxes back and compares them. Only then the file is renamed from
/// its temporary name to `path`.
///
/// Collective. On failure no file is left behind and all ranks throw the same error:
/// Error(cannot_create) or Error(io).
void write_pieces(const comm::Group& group, const std::filesystem::path& path,
                  const std::function<void(hid_t file)>& make_structure, std::int64_t chunk_bytes,
                  const std::vector<Piece>& pieces);

}  // namespace reelmesh

#pragma once
// Texts of variable length in files that may be damaged. HDF5 stores such a text in a "global heap"
// and a reference to it in the attribute or dataset. HDF5 1.10 copies as many bytes as the heap
// says into a buffer of the length that the reference says, without comparing the two, and heaps
// have no checksums. So the references are read as bytes, and the heap is read here.
#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "base/file.hpp"

namespace reelmesh::hdf5 {

/// A reference as it is stored: length, address of the collection, index in it (little-endian).
using TextReference = std::array<unsigned char, 16>;

/// Makes H5Aread and H5Dread give references to texts as opaque elements of 16 bytes. Called once.
void register_text_references();

/// The texts of one file, which nobody writes meanwhile.
class TextHeap {
 public:
  explicit TextHeap(const std::filesystem::path& path) : file_(open_file(path, 0)) {}

  /// The text of a reference; nullopt if it is longer than `limit` bytes or leads to anything that
  /// is not a text of this length.
  std::optional<std::string> read(const TextReference& reference, std::size_t limit);

 private:
  /// The bytes of the collection at an address; empty if there is none.
  const std::string& collection(std::uint64_t address);
  std::string read_bytes(std::uint64_t address, std::uint64_t count) const;

  Descriptor file_;
  std::uint64_t address_ = 0;
  std::string collection_;  // at address_
};

}  // namespace reelmesh::hdf5

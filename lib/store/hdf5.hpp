#pragma once
// Only lib/store uses HDF5. Every identifier has one owner, and every failure becomes an Error that
// names the file and the innermost reason in HDF5's error stack. HDF5 itself prints nothing, loads
// no plugins and takes no file locks (a lock would block a second reader).
#include <hdf5.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/handle.hpp"
#include "comm/group.hpp"
#include "layout/layout.hpp"

namespace reelmesh::hdf5 {

inline constexpr hid_t no_id = -1;

using Group = Handle<hid_t, &H5Gclose, no_id>;
using Dataset = Handle<hid_t, &H5Dclose, no_id>;
using Dataspace = Handle<hid_t, &H5Sclose, no_id>;
using Datatype = Handle<hid_t, &H5Tclose, no_id>;
using Attribute = Handle<hid_t, &H5Aclose, no_id>;
using Properties = Handle<hid_t, &H5Pclose, no_id>;

/// Owner of an open file. close() reports errors; the destructor does not.
class File {
 public:
  File() = default;
  explicit File(hid_t id) : id_(id) {}
  File(File&& other) noexcept : id_(std::exchange(other.id_, no_id)) {}
  File& operator=(File&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (id_ != no_id) H5Fclose(id_);
  }

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ != no_id; }
  /// Flushes and closes the file. Error(io).
  void close();
  /// Leaks a file on which writing failed: closing it would write again.
  void abandon() { id_ = no_id; }

 private:
  hid_t id_ = no_id;
};

/// Initialises HDF5 for this process. Called automatically before main, and so before MPI_Init.
/// HDF5's clean-up at exit is disabled, because it would crash after a failed close.
void initialize();

/// The innermost entry of HDF5's error stack, which has the cause.
std::string innermost_error();

/// Returns `result`; throws Error(status) "FILE: cannot DOING: REASON" if it is negative.
template <class T>
T check(T result, const std::filesystem::path& file, std::string_view doing,
        Status status = Status::io) {
  if (result < 0) {
    fail(status, "{}: cannot {}: {}", file.string(), doing, innermost_error());
  }
  return result;
}

/// The same for an object inside an open file; the file's name is taken from the object. Error(io).
template <class T>
T check_in(hid_t object, T result, std::string_view doing) {
  if (result >= 0) return result;
  const std::string reason = innermost_error();  // before the next call of HDF5 clears it
  char name[4096] = "HDF5 file";
  H5Fget_name(object, name, sizeof name);
  fail(Status::io, "{}: cannot {}: {}", name, doing, reason);
}

/// Creates a file on this rank only, replacing an existing one. Error(cannot_create).
File create(const std::filesystem::path& path);
/// Opens an existing file for writing by this rank only. Error(io).
File open_to_write(const std::filesystem::path& path);
/// Calls write(file) and closes the file. If one of them fails, the file is abandoned.
void write_and_close(File file, const std::function<void(hid_t file)>& write);
/// Writes a file on this rank only, as NewFile. Error(cannot_create), Error(io).
void write_file(const std::filesystem::path& path, const std::function<void(hid_t file)>& write);
/// Opens an existing file for reading by this rank only. Error(io).
File open_for_reading(const std::filesystem::path& path);
/// Fixed-length UTF-8, padded with zeros, at least one byte (HDF5 has no empty fixed strings).
Datatype string_type(std::size_t bytes);
/// An enumeration of these names and values, stored in a byte.
Datatype enumeration(const std::vector<std::pair<std::string, int>>& values);

/// A member of a table row.
struct Field {
  const char* name;
  std::size_t offset;
  hid_t number;             ///< HDF5 type of a number or an enumeration
  std::size_t letters = 0;  ///< for a text its length in bytes; 0: a number
};
/// Type of table rows of `size` bytes, with the same layout in memory and in the file.
Datatype compound(std::size_t size, const std::vector<Field>& fields);
/// Sets a text of a row: UTF-8, padded with zeros; longer ones are truncated.
template <std::size_t n>
void put(char (&field)[n], std::string_view text) {
  std::size_t length = std::min(text.size(), n);
  // Do not cut within a character: continuation bytes are 10xxxxxx.
  while (length < text.size() && length > 0 && (text[length] & 0xC0) == 0x80) --length;
  std::memset(field, 0, n);
  std::memcpy(field, text.data(), length);
}

// Writes an attribute. Texts are UTF-8 strings of variable length, which h5py reads as str; they
// have no zero bytes. Error(io).
void write_attribute(hid_t object, const char* name, std::string_view value);
void write_attribute(hid_t object, const char* name, const std::vector<std::string>& values);
void write_attribute(hid_t object, const char* name, std::int64_t value);
void write_attribute(hid_t object, const char* name, std::uint64_t value);
void write_attribute(hid_t object, const char* name, double value);
/// An enumeration of FALSE and TRUE, which h5py reads as a bool.
void write_flag(hid_t object, const char* name, bool value);

/// The attributes long_name and units of an array; units: "s", "1" for a pure number, "" for none.
void describe(hid_t dataset, std::string_view long_name, std::string_view units);
/// The attributes long_names and units of a table, one entry for each column.
void describe_columns(hid_t table, const std::vector<std::string>& long_names,
                      const std::vector<std::string>& units);

/// The version of the layout of all files, as the attribute format_version.
inline constexpr std::int64_t format_version = 1;
/// Writes the attributes format_version and title of a file.
void write_title(hid_t file, std::string_view title);

/// Reads a scalar attribute; nullopt if missing, of another type, or longer than `limit` bytes. The
/// file must be open for reading only. It is untrusted: texts of variable length are read without
/// HDF5, which does not check what their references lead to.
std::optional<std::string> read_text(hid_t object, const char* name, std::size_t limit);
std::optional<std::uint64_t> read_unsigned(hid_t object, const char* name);
std::optional<double> read_number(hid_t object, const char* name);
/// The same for a one-dimensional dataset of texts of variable length. limit: of all together.
std::optional<std::vector<std::string>> read_texts(hid_t dataset, std::size_t limit);

/// How the values of a dataset stand in its file.
enum class Storage {
  whole,            ///< one after the other
  chunks,           ///< of chunk_shape(), each with a checksum (fletcher32)
  deflated_chunks,  ///< likewise, shuffled and deflated (level 1)
};
/// The shape of the chunks of an array: one index of the first axis, or all of an array of one
/// axis.
Shape chunk_shape(Shape shape);

/// The type of elements, in memory and in files.
hid_t native_type(DType dtype);

/// Creates a dataset without fill values: the caller must write all values. Error(io).
Dataset create_dataset(hid_t parent, const char* name, hid_t type, const Shape& shape,
                       Storage storage = Storage::whole);

/// Creates and writes a one-dimensional dataset of texts of variable length, from one rank.
Dataset write_texts(hid_t parent, const char* name, const std::vector<const char*>& values);

Dataset open_dataset(hid_t parent, const char* name);

/// Writes a whole dataset from one rank.
void write_all(hid_t dataset, hid_t type, const void* values);

/// Where the values of a contiguous dataset begin in its file, in bytes; 0 without values.
std::int64_t values_offset(hid_t dataset);

/// A chunk as it stands in a file.
struct FilteredChunk {
  std::int64_t index = 0;             ///< its first one of the first axis
  std::uint32_t skipped_filters = 0;  ///< a bit for each filter that was left out
  std::string bytes;
};
/// The chunks of values that are dense in `shape`, filtered as in a dataset of create_dataset().
/// Touches no file. Error(io).
std::vector<FilteredChunk> filtered_chunks(hid_t type, const Shape& shape, Storage storage,
                                           const void* values);
/// Writes such a chunk of a dataset. index: its first one of the first axis. Error(io).
void write_filtered_chunk(hid_t dataset, std::int64_t index, std::uint32_t skipped_filters,
                          std::string_view bytes);

/// Reads the bytes of a box on this rank only. Error(io).
std::string read_box(hid_t dataset, hid_t type, const Box& box);
/// The values of a box of the array `name`, on the host. Error(io).
Tensor read_values(hid_t file, const char* name, DType dtype, const Box& box);

}  // namespace reelmesh::hdf5

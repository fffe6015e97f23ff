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
// Writes an attribute. Texts are UTF-8 strings of variable length, which h5py reads as str; they
// have no zero bytes. Error(io).
void write_attribute(hid_t object, const char* name, std::string_view value);
void write_attribute(hid_t object, const char* name, const std::vector<std::string>& values);
void write_attribute(hid_t object, const char* name, std::int64_t value);
void write_attribute(hid_t object, const char* name, std::uint64_t value);
void write_attribute(hid_t object, const char* name, double value);
/// 0 or 1 as int8: netCDF shows no enumerations.
void write_flag(hid_t object, const char* name, bool value);
/// The attributes flag_values and flag_meanings of an array of int8 or int16 (CF conventions): the
/// words for 0, 1, …
void write_flag_meanings(hid_t dataset, hid_t type, const std::vector<std::string>& meanings);

/// The attributes long_name and units of an array; units: "s", "1" for a pure number, "" for none.
void describe(hid_t dataset, std::string_view long_name, std::string_view units);
/// The latest version of the layout that this program reads, as the attribute format_version. 2:
/// tables are groups of columns (table.hpp).
inline constexpr std::int64_t format_version = 2;
/// Writes the attributes format_version and title of a file. version: of files with tables 2, so
/// that earlier programs refuse them.
void write_title(hid_t file, std::string_view title, std::int64_t version = 1);

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
/// The shape of the chunks of an array: one index of the first axis; of an array of one axis
/// max_chunk values, or all if it has fewer.
Shape chunk_shape(Shape shape);
inline constexpr std::int64_t max_chunk = 1 << 16;

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

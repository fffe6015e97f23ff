#pragma once
// HDF5 is known to this room alone. Every identifier has one owner, every failure becomes an Error
// that names the file and the innermost reason that HDF5 gives. HDF5 itself prints nothing, loads
// no plugins and takes no file locks (a lock would shut out a second reader).
#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
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

/// The owner of an open file, which can also be closed with a report, or abandoned.
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
  /// Writes out what HDF5 still holds and closes. Collective for a file opened together. Error(io).
  void close();
  /// Lets go of a file on which writing failed. Closing it would be collective, among ranks that
  /// may stand at different places, and would write again.
  void abandon() { id_ = no_id; }

 private:
  hid_t id_ = no_id;
};

/// Prepares the library for this process. Runs by itself before main, thus before MPI_Init: HDF5 is
/// then never torn down at the end, which it could not survive after a failed close.
void initialize();

/// The innermost entry of HDF5's error stack, where the cause stands.
std::string innermost_error();

/// `result`, or Error(status) "FILE: cannot DOING: REASON" where it is negative.
template <class T>
T check(T result, const std::filesystem::path& file, std::string_view doing,
        Status status = Status::io) {
  if (result < 0) {
    fail(status, "{}: cannot {}: {}", file.string(), doing, innermost_error());
  }
  return result;
}

/// The same for an object inside an open file, which knows the file's name.
template <class T>
T check_in(hid_t object, T result, std::string_view doing) {
  if (result >= 0) return result;
  const std::string reason = innermost_error();  // before the next call of HDF5 clears it
  char name[4096] = "HDF5 file";
  H5Fget_name(object, name, sizeof name);
  fail(Status::io, "{}: cannot {}: {}", name, doing, reason);
}

/// A new file made by this rank alone; an old one of that name is lost. Error(cannot_create).
File create(const std::filesystem::path& path);
/// An existing file opened for writing by all ranks of `group` together. Collective.
File open_together(const comm::Group& group, const std::filesystem::path& path);
/// An existing file opened for reading by this rank alone. Error(io).
File open_for_reading(const std::filesystem::path& path);
/// Fixed-length UTF-8, padded with zeros, at least one byte (HDF5 has no empty fixed strings).
Datatype string_type(std::size_t bytes);

// Attributes. Texts may be of any length: files are made in the 1.8 format, which stores those
// above 64 KiB outside the object's header.
void write_attribute(hid_t object, const char* name, std::string_view value);
void write_attribute(hid_t object, const char* name, const std::vector<std::string>& values);
void write_attribute(hid_t object, const char* name, std::int64_t value);
void write_attribute(hid_t object, const char* name, std::uint64_t value);
void write_attribute(hid_t object, const char* name, double value);

/// A scalar attribute, or nothing where it is missing, of another kind, or larger than `limit`.
std::optional<std::string> read_text(hid_t object, const char* name, std::size_t limit);
std::optional<std::uint64_t> read_unsigned(hid_t object, const char* name);
std::optional<double> read_number(hid_t object, const char* name);

/// A dataset of `shape` whose values are all to be written (no fill values). With `chunk` it is
/// cut into chunks, each shuffled, deflated (level 1) and given a checksum; without it is
/// contiguous.
Dataset create_dataset(hid_t parent, const char* name, hid_t type, const Shape& shape,
                       const std::optional<Shape>& chunk = std::nullopt);

Dataset open_dataset(hid_t parent, const char* name);

/// Writes a whole dataset from one rank.
void write_all(hid_t dataset, hid_t type, const void* values);

/// Writes `values`, dense in the shape of `box`, to that box of a dataset of a file opened
/// together. Collective: a rank with nothing to write takes part with an empty box.
void write_box(hid_t dataset, hid_t type, const Box& box, const void* values);

/// The bytes of a box that is not empty, read by one rank.
std::string read_box(hid_t dataset, hid_t type, const Box& box);

}  // namespace reelmesh::hdf5

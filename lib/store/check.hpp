#pragma once
// Checks of files that may be damaged or from another program: links are not followed, nothing that
// a file says is trusted.
#include "store/clip.hpp"
#include "store/hdf5.hpp"

namespace reelmesh::hdf5 {

/// Whether the file can be opened for reading; empty if it is missing, damaged or not an HDF5 file.
File open_if_valid(const std::filesystem::path& path);

/// Whether the file itself has an object `name` of this type: links to others are not followed.
bool is_inside(hid_t file, const char* name, H5O_type_t type);

/// The shape of the array `name` of this type, of which nothing else is checked; empty if there is
/// none in the file itself.
std::optional<Shape> dataset_shape(hid_t file, const char* name, hid_t type);

/// Whether `name` is an array of this shape and type that is stored as this program stores arrays,
/// and the file has the chunks of `count` indices of the first axis from `first` on, each of which
/// gives as many bytes as its values take. To be checked before HDF5 1.10 reads such an array,
/// since it trusts the file: it allocates what the index of chunks says, inflates whatever a chunk
/// contains, which may be a thousand times as much, and reads beyond the end of a chunk that is too
/// short. It reads missing chunks, however many, as zeros.
bool has_chunks(hid_t file, const char* name, hid_t type, const Shape& shape, std::int64_t first,
                std::int64_t count);

/// Whether `name` is an array of this shape and type, all values of which are in the file itself
/// and have the checksum that was written with them.
bool holds(hid_t file, const char* name, hid_t type, const Shape& shape);

/// Whether `name` is an array of this shape and type that is stored as a whole instead of in
/// chunks, and the file has all of its bytes.
bool is_whole(hid_t file, const char* name, hid_t type, const Shape& shape);
/// As holds(), for such an array.
bool holds_whole(hid_t file, const char* name, hid_t type, const Shape& shape);

/// Whether a file is of this or an earlier version of the layout.
bool is_known_version(hid_t file);

/// Writes the attributes of a clip, without a title.
void write_record(hid_t file, const ClipRecord& record);
/// Whether the attributes that are compared (Compared::yes) have this clip's values in the file.
bool has_record(hid_t file, const ClipRecord& expected);
/// The attributes that has_record compares, as texts.
std::vector<std::string> compared_texts(const ClipRecord& record);
bool has_text(hid_t object, const char* name, const std::string& expected);

}  // namespace reelmesh::hdf5

#include "store/hdf5.hpp"

#include <hdf5_hl.h>

#include <algorithm>
#include <array>

#include "base/new_file.hpp"
#include "store/text_heap.hpp"

namespace reelmesh::hdf5 {
namespace {

std::vector<hsize_t> extents(const Shape& shape) { return {shape.begin(), shape.end()}; }

Dataspace simple_space(hid_t object, const Shape& shape) {
  const std::vector<hsize_t> dims = extents(shape);
  return Dataspace(check_in(object,
                            H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                            "describe an array"));
}

// The format of HDF5 1.8, which every reader knows; that of 1.10 only where 1.8 has none (virtual
// datasets).
Properties access_properties() {
  Properties access(H5Pcreate(H5P_FILE_ACCESS));
  expect(static_cast<bool>(access) && H5Pset_file_locking(access.get(), false, true) >= 0 &&
             H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V110) >= 0,
         "HDF5 refuses file access properties: {}", innermost_error());
  return access;
}

// Before main; otherwise HDF5 would initialise itself with its first call (see initialize()).
[[maybe_unused]] const bool initialized_before_main = (initialize(), true);

}  // namespace

void initialize() {
  static const bool done = [] {
    H5dont_atexit();
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    H5PLset_loading_state(0);  // a file must not choose code to run
    register_text_references();
    return true;
  }();
  static_cast<void>(done);
}

std::string innermost_error() {
  std::string reason;
  const auto first = [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
    std::string& text = *static_cast<std::string*>(data);
    if (text.empty() && error->desc != nullptr) text = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first, &reason);
  return reason.empty() ? "HDF5 gives no reason" : reason;
}

File create(const std::filesystem::path& path) {
  const Properties access = access_properties();
  return File(check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), path,
                    "create the file", Status::cannot_create));
}

File open_to_write(const std::filesystem::path& path) {
  const Properties access = access_properties();
  return File(check(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()), path, "open the file"));
}

void write_and_close(File file, const std::function<void(hid_t)>& write) {
  try {
    write(file.get());
    file.close();
  } catch (...) {
    file.abandon();
    throw;
  }
}

void write_file(const std::filesystem::path& path, const std::function<void(hid_t)>& write) {
  NewFile file(path);
  write_and_close(create(file.temporary()), write);
  file.commit();
}

File open_for_reading(const std::filesystem::path& path) {
  const Properties access = access_properties();
  return File(check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), path, "open the file"));
}

void File::close() {
  // A failed close frees the file but not its identifier: it must not be closed again.
  const hid_t id = std::exchange(id_, no_id);
  check_in(id, H5Fflush(id, H5F_SCOPE_GLOBAL), "flush the file");
  if (H5Fclose(id) < 0) fail(Status::io, "HDF5 cannot close a file: {}", innermost_error());
}

Shape chunk_shape(Shape shape) {
  shape[0] = shape.size() > 1 ? 1 : std::min(shape[0], max_chunk);
  return shape;
}

hid_t native_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return H5T_NATIVE_FLOAT;
    case DType::int32:
      return H5T_NATIVE_INT32;
    case DType::uint8:
      return H5T_NATIVE_UINT8;
    default:
      fail(Status::internal, "files have no arrays of {}", name_of(dtype));
  }
}

Dataset create_dataset(hid_t parent, const char* name, hid_t type, const Shape& shape,
                       Storage storage) {
  const std::string doing = fmt::format("create dataset {} {}", name, to_string(shape));
  const Dataspace space = simple_space(parent, shape);
  const Properties creation(check_in(parent, H5Pcreate(H5P_DATASET_CREATE), doing));
  check_in(parent, H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), doing);
  // No time stamps: equal content gives equal bytes.
  check_in(parent, H5Pset_obj_track_times(creation.get(), false), doing);
  if (storage != Storage::whole) {
    const std::vector<hsize_t> dims = extents(chunk_shape(shape));
    check_in(parent, H5Pset_chunk(creation.get(), static_cast<int>(dims.size()), dims.data()),
             doing);
    if (storage == Storage::deflated_chunks) {
      check_in(parent, H5Pset_shuffle(creation.get()), doing);
      check_in(parent, H5Pset_deflate(creation.get(), 1), doing);
    }
    check_in(parent, H5Pset_fletcher32(creation.get()), doing);
  } else {  // space now: HDF5 would allocate it only on the ranks that write something
    check_in(parent, H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY), doing);
  }
  return Dataset(check_in(
      parent, H5Dcreate2(parent, name, type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
      doing));
}

Dataset open_dataset(hid_t parent, const char* name) {
  return Dataset(
      check_in(parent, H5Dopen2(parent, name, H5P_DEFAULT), fmt::format("open dataset {}", name)));
}

void write_all(hid_t dataset, hid_t type, const void* values) {
  const char* const doing = "write a dataset";
  const Datatype stored(check_in(dataset, H5Dget_type(dataset), doing));
  const Dataspace space(check_in(dataset, H5Dget_space(dataset), doing));
  // HDF5 clears two buffers before it converts values, by default of 1 MiB however few there are.
  constexpr std::size_t enough = 1 << 20;
  // A text takes 16 bytes in the file, but its type has the size of a pointer.
  const std::size_t element = 2 * std::max(H5Tget_size(type), H5Tget_size(stored.get()));
  const auto count = static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get()));
  const std::size_t bytes = std::max(element, std::min(enough, count * element));
  const Properties transfer(check_in(dataset, H5Pcreate(H5P_DATASET_XFER), doing));
  check_in(dataset, H5Pset_buffer(transfer.get(), bytes, nullptr, nullptr), doing);
  check_in(dataset, H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, transfer.get(), values), doing);
}

std::int64_t values_offset(hid_t dataset) {
  const haddr_t offset = H5Dget_offset(dataset);
  return offset == HADDR_UNDEF ? 0 : static_cast<std::int64_t>(offset);
}

std::vector<FilteredChunk> filtered_chunks(hid_t type, const Shape& shape, Storage storage,
                                           const void* values) {
  const Properties access(H5Pcreate(H5P_FILE_ACCESS));
  // The file in memory grows by so many bytes at a time, which are cleared.
  const std::size_t growth = std::max<std::size_t>(
      64 << 10, static_cast<std::size_t>(numel(shape)) * H5Tget_size(type) / 4);
  expect(static_cast<bool>(access) && H5Pset_fapl_core(access.get(), growth, false) >= 0,
         "HDF5 refuses a file in memory: {}", innermost_error());
  const File memory(check(H5Fcreate("chunks", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), "chunks",
                          "create the file in memory"));
  const Dataset dataset = create_dataset(memory.get(), "values", type, shape, storage);
  write_all(dataset.get(), type, values);
  check_in(dataset.get(), H5Dflush(dataset.get()), "filter values");
  std::vector<FilteredChunk> chunks;
  std::vector<hsize_t> at(shape.size(), 0);
  for (std::int64_t index = 0; index < shape[0]; index += chunk_shape(shape)[0]) {
    at[0] = static_cast<hsize_t>(index);
    hsize_t bytes = 0;
    check_in(dataset.get(), H5Dget_chunk_storage_size(dataset.get(), at.data(), &bytes),
             "filter values");
    FilteredChunk& made = chunks.emplace_back();
    made.index = index;
    made.bytes.resize(static_cast<std::size_t>(bytes));
    check_in(dataset.get(),
             H5Dread_chunk(dataset.get(), H5P_DEFAULT, at.data(), &made.skipped_filters,
                           made.bytes.data()),
             "filter values");
  }
  return chunks;
}

void write_filtered_chunk(hid_t dataset, std::int64_t index, std::uint32_t skipped_filters,
                          std::string_view bytes) {
  std::array<hsize_t, H5S_MAX_RANK> at{static_cast<hsize_t>(index)};
  check_in(
      dataset,
      H5Dwrite_chunk(dataset, H5P_DEFAULT, skipped_filters, at.data(), bytes.size(), bytes.data()),
      fmt::format("write chunk {}", index));
}

std::string read_box(hid_t dataset, hid_t type, const Box& box) {
  const std::string doing = fmt::format("read box {}", to_string(box));
  std::string bytes(static_cast<std::size_t>(box.numel()) * H5Tget_size(type), '\0');
  if (bytes.empty()) return bytes;
  const Dataspace file(check_in(dataset, H5Dget_space(dataset), doing));
  const int axes = H5Sget_simple_extent_ndims(file.get());
  expect(axes == static_cast<int>(box.extent.size()), "box {} of an array with {} axes",
         to_string(box), axes);
  const std::vector<hsize_t> start = extents(box.offset), count = extents(box.extent);
  check_in(
      dataset,
      H5Sselect_hyperslab(file.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
      doing);
  const Dataspace memory = simple_space(dataset, box.extent);
  check_in(dataset, H5Dread(dataset, type, memory.get(), file.get(), H5P_DEFAULT, bytes.data()),
           doing);
  return bytes;
}

Tensor read_values(hid_t file, const char* name, DType dtype, const Box& box) {
  Tensor values = Tensor::empty(box.extent, dtype);
  if (box.empty()) return values;
  const std::string bytes = read_box(open_dataset(file, name).get(), native_type(dtype), box);
  std::memcpy(values.raw(), bytes.data(), bytes.size());
  return values;
}

}  // namespace reelmesh::hdf5

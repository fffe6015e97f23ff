#include "weights/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "tensor/convert.hpp"
#include "tensor/float8.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

constexpr std::int64_t length_bytes = 8;         // the header's length, little-endian
constexpr std::int64_t buffer_bytes = 64 << 10;  // stays in the caches; malloc keeps it

// Programs that download files reserve their space first, with zeros, and keep such a file beside
// it until all is there.
void require_complete_download(const std::filesystem::path& path) {
  std::error_code error;
  for (const char* extension : {".aria2", ".incomplete", ".part", ".crdownload"}) {
    const std::filesystem::path beside = path.string() + extension;
    require(!std::filesystem::exists(beside, error), Status::data,
            "{}: its download is not complete: found {}; finish it, or remove that file",
            path.string(), beside.filename().string());
  }
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  require_complete_download(path);
  SafetensorsFile out;
  out.file_ = RegularFile::open(path);
  use_file(path, out.file_.state());
  const std::int64_t size = out.file_.size();
  // The first bytes of a safetensors file, a length, may be those of any other type.
  const auto other = [&] { return out.file_.what_it_is(); };
  if (size < length_bytes) {
    fail(Status::data, "{}: {} bytes, too short for a safetensors file{}", path.string(), size,
         other());
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, out.file_.copy(0, length_bytes).data(), sizeof(header_bytes));
  const std::int64_t limit = std::min(max_header_bytes, size - length_bytes);
  if (header_bytes > static_cast<std::uint64_t>(limit)) {
    const std::string found = other();
    require(found.empty(), Status::data, "{}: not a safetensors file{}", path.string(), found);
    fail(Status::data,
         "{}: a header of {} bytes, expected at most {} (truncated, or not a safetensors file)",
         path.string(), header_bytes, limit);
  }
  const std::int64_t data_begin = length_bytes + static_cast<std::int64_t>(header_bytes);
  const std::string header = out.file_.copy(length_bytes, static_cast<std::int64_t>(header_bytes));
  out.tensors_ = parse_header(header, data_begin, size - data_begin, path, &out.metadata_);
  return out;
}

Tensor SafetensorsFile::load(const std::string& name, DType dtype) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    fail(Status::data, "{}: tensor '{}' is missing", path().string(), printable(name));
  }
  return load_elements(name, 0, found->second.shape, dtype);
}

Tensor SafetensorsFile::load_elements(const std::string& name, std::int64_t first, Shape shape,
                                      DType dtype) const {
  Tensor out = Tensor::empty(std::move(shape), dtype);
  read(name, first, 1, out.numel(), dtype, out.raw(), out.numel());
  return out;
}

void SafetensorsFile::read(const std::string& name, std::int64_t first, std::int64_t rows,
                           std::int64_t row, DType dtype, void* into, std::int64_t stride) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    fail(Status::data, "{}: tensor '{}' is missing", path().string(), printable(name));
  }
  const TensorInfo& info = found->second;
  const std::optional<DType> from = loadable(info.dtype);
  if (!from) {
    fail(Status::data, "{}: tensor '{}' holds {}, expected {}", path().string(), printable(name),
         info.dtype, loadable_types);
  }
  const auto* float8 = float8_values(info.dtype);
  const std::int64_t width = float8 == nullptr ? size_of(*from) : 1;
  const std::int64_t count = rows * row;
  expect(first >= 0 && rows >= 0 && row >= 0 && stride >= row && first <= info.bytes / width &&
             count <= info.bytes / width - first,
         "{}: elements {} to {} of tensor '{}' {}", path().string(), first, first + count, name,
         to_string(info.shape));

  const std::int64_t begin = info.begin + first * width;
  if (float8 == nullptr && *from == dtype && (rows == 1 || stride == row)) {
    file_.read_part(begin, count * width, into);
    return file_.require_unchanged();
  }
  // Several rows, or parts of one long row, at a time.
  const std::int64_t room = buffer_bytes / width;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(
      static_cast<std::size_t>(std::min(count * width, buffer_bytes)));
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(1, room / std::max<std::int64_t>(1, row));
  const std::int64_t part = std::min(row, room);
  for (std::int64_t r = 0; r < rows; r += rows_at_once) {
    const std::int64_t n = std::min(rows_at_once, rows - r);
    for (std::int64_t done = 0; done < row; done += part) {
      const std::int64_t length = std::min(part, row - done);
      file_.read_part(begin + (r * row + done) * width, ((n - 1) * row + length) * width,
                      buffer.get());
      for (std::int64_t i = 0; i < n; ++i) {
        const std::byte* source = buffer.get() + i * row * width;
        std::byte* target =
            static_cast<std::byte*>(into) + ((r + i) * stride + done) * size_of(dtype);
        if (float8 != nullptr) {
          convert_float8(*float8, 1, source, target, dtype, length);
        } else {
          convert(source, *from, target, dtype, length);
        }
      }
    }
  }
  file_.require_unchanged();
}

void SafetensorsFile::read_float8(const std::string& name, std::int64_t first, std::int64_t count,
                                  std::byte* into) const {
  const TensorInfo& info = tensors_.at(name);
  expect(float8_values(info.dtype) != nullptr && first >= 0 && count >= 0 && first <= info.bytes &&
             count <= info.bytes - first,
         "{}: numbers {} to {} of tensor '{}' {}", path().string(), first, first + count, name,
         to_string(info.shape));
  file_.read_part(info.begin + first, count, into);
  file_.require_unchanged();
}

}  // namespace reelmesh

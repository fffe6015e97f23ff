#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "tensor/tensor.hpp"
#include "weights/header.hpp"
#include "weights/regular_file.hpp"

namespace reelmesh {

/// One safetensors file. Opening validates the whole header; the bytes of a tensor
/// are read only when it is loaded. A job may open it several times: use_file().
class SafetensorsFile {
 public:
  /// Throws Error(no_input) if the file is missing, Error(data) if it is damaged, Error(io) if it
  /// cannot be read.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  /// All tensors, by the names in the file.
  const TensorInfos& tensors() const { return tensors_; }
  const FileMetadata& metadata() const { return metadata_; }
  const RegularFile& bytes() const { return file_; }

  /// A copy of the whole tensor, converted to `dtype` (rounding to nearest even). Throws
  /// Error(data) if it is missing, its type is not one of loadable_types, or the file has changed
  /// since it was opened.
  Tensor load(const std::string& name, DType dtype) const;
  /// Elements [first, first + numel(shape)) of the tensor in row-major order, as `shape`.
  Tensor load_elements(const std::string& name, std::int64_t first, Shape shape, DType dtype) const;
  /// The same to the caller's host memory: `rows` rows of `row` elements each, from element `first`
  /// on, to rows of `into` that are `stride` elements apart. Thread-safe.
  void read(const std::string& name, std::int64_t first, std::int64_t rows, std::int64_t row,
            DType dtype, void* into, std::int64_t stride) const;
  /// Elements [first, first + count) of a tensor that has float8_values(), as they are stored.
  void read_float8(const std::string& name, std::int64_t first, std::int64_t count,
                   std::byte* into) const;

 private:
  RegularFile file_;
  TensorInfos tensors_;
  FileMetadata metadata_;
};

}  // namespace reelmesh

#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "tensor/tensor.hpp"
#include "weights/header.hpp"
#include "weights/mapped_file.hpp"

namespace reelmesh {

/// One safetensors file, mapped for reading. The header is checked as a whole when the file is
/// opened; the bytes of a tensor are touched only when it is loaded.
class SafetensorsFile {
 public:
  /// Throws Error(no_input) where the file is missing, Error(data) where it is damaged, Error(io)
  /// where it cannot be read.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  /// Everything in the file, by the names in the file.
  const TensorInfos& tensors() const { return tensors_; }

  /// The whole tensor, copied and converted (rounding to nearest even). Throws Error(data) where it
  /// is missing, not of a floating type that can be loaded, or the file has shrunk.
  Tensor load(const std::string& name, DType dtype) const;
  /// Elements [first, first + numel(shape)) of the tensor in row-major order, as `shape`.
  Tensor load_elements(const std::string& name, std::int64_t first, Shape shape, DType dtype) const;
  /// The same in memory of the caller: `rows` times `row` elements, beginning at element `first`,
  /// the rows `stride` elements apart in `into`. Several threads may read at once.
  void read(const std::string& name, std::int64_t first, std::int64_t rows, std::int64_t row,
            DType dtype, void* into, std::int64_t stride) const;

 private:
  MappedFile file_;
  TensorInfos tensors_;
};

}  // namespace reelmesh

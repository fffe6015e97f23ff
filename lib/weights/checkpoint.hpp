#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/numerics.hpp"
#include "tensor/tensor.hpp"
#include "weights/safetensors.hpp"

namespace reelmesh {

using ExpectedShapes = std::map<std::string, Shape>;

/// How a checkpoint differs from what a model expects.
struct Difference {
  struct WrongShape {
    std::string name;
    Shape found, expected;
  };
  std::vector<std::string> missing;     ///< expected, under no known name
  std::vector<std::string> unexpected;  ///< names in the checkpoint that the model has no use for
  std::vector<WrongShape> wrong_shapes;
  bool empty() const { return missing.empty() && unexpected.empty() && wrong_shapes.empty(); }
};

/// The tensors of one part of a model: a folder with one safetensors file, or with several and an
/// index. Opening reads the headers only. Callers use the current names of diffusers and
/// transformers; tensors under older names are found as well (see names.hpp), and linear layers
/// that are stored as 1×1 convolutions: trailing extents of 1 do not count in a shape.
class Checkpoint {
 public:
  /// `stem` is "diffusion_pytorch_model" or "model". If <stem>.safetensors.index.json exists, its
  /// weight_map decides which file holds which tensor, else <stem>.safetensors holds all. Throws
  /// Error(no_input) where a file is missing, Error(data) where one is damaged, the index names
  /// a file that is not in the folder itself, or a tensor is not in the file that the index names.
  static Checkpoint open(const std::filesystem::path& folder, std::string_view stem);

  /// The same tensors, loaded to this device (the host where none is named), for layers that
  /// compute with these numerics.
  Checkpoint on(Device device, const Numerics& numerics = {}) &&;
  Device device() const { return device_; }
  const Numerics& numerics() const { return numerics_; }

  const std::filesystem::path& folder() const { return folder_; }
  /// All tensors, by the names in the files.
  const TensorInfos& tensors() const { return tensors_; }
  bool has(const std::string& name) const { return find(name) != nullptr; }

  /// A copy of the tensor as `dtype`, rounded to nearest even, on device(). Throws Error(data)
  /// where it is missing or its shape is not `expected`.
  Tensor load(const std::string& name, const Shape& expected, DType dtype) const;
  /// Entries [begin, begin + count) of the leading axis; the bytes of others are not read.
  /// `expected` is the shape of the whole tensor.
  Tensor load_rows(const std::string& name, const Shape& expected, std::int64_t begin,
                   std::int64_t count, DType dtype) const;
  /// The same in host memory of the caller, the entries `stride` elements apart. Several threads
  /// may read at once.
  void read_rows(const std::string& name, const Shape& expected, std::int64_t begin,
                 std::int64_t count, DType dtype, void* into, std::int64_t stride) const;

  /// Throws Error(data) for the first tensor that is missing, has another shape, or a type that
  /// cannot be loaded. Reads no data.
  void check(const ExpectedShapes& expected) const;
  Difference compare(const ExpectedShapes& expected) const;

 private:
  const TensorInfos::value_type* find(const std::string& name) const;
  const TensorInfos::value_type& find(const std::string& name, const Shape& expected) const;
  const SafetensorsFile& file_of(const TensorInfo& info) const { return files_.at(info.file); }
  void add_file(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& index);

  std::filesystem::path folder_;
  std::map<std::filesystem::path, SafetensorsFile> files_;
  TensorInfos tensors_;
  Device device_;
  Numerics numerics_;
};

}  // namespace reelmesh

#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/float8.hpp"
#include "tensor/numerics.hpp"
#include "tensor/tensor.hpp"
#include "weights/model_paths.hpp"
#include "weights/safetensors.hpp"

namespace reelmesh {

class LoraChanges;

using ExpectedShapes = std::map<std::string, Shape>;

/// How a checkpoint differs from what a model expects.
struct Difference {
  struct WrongShape {
    std::string name;
    Shape found, expected;
  };
  std::vector<std::string> missing;     ///< expected, but found under no current or older name
  std::vector<std::string> unexpected;  ///< names in the checkpoint that the model does not use
  std::vector<WrongShape> wrong_shapes;
  bool empty() const { return missing.empty() && unexpected.empty() && wrong_shapes.empty(); }
};

/// The file that holds the weights of a part, or the index that names their files.
struct WeightFiles {
  std::filesystem::path path;  ///< empty: there is none
  bool is_index = false;
};
/// Names as of Checkpoint::open.
WeightFiles weight_files(const std::filesystem::path& folder, std::string_view stem,
                         std::string_view variant = {});

/// The tensors of one part of a model: a folder with one safetensors file, or with several and an
/// index. Opening reads the headers only. Callers use the current names of diffusers and
/// transformers; tensors under older names are found too (see names.hpp). Shapes are compared
/// without extents of 1 at their ends, so that linear layers may be stored as 1×1 convolutions, and
/// tables with a batch axis. A tensor X.weight is multiplied by X.scale_weight or X.weight_scale,
/// as files of float8 have them: one number, or one for each row. Copies share the open files.
class Checkpoint {
 public:
  /// `stem` is "diffusion_pytorch_model" or "model". If <stem>.safetensors.index.json exists, its
  /// weight_map tells which file holds which tensor; otherwise <stem>.safetensors holds all. With a
  /// variant ("fp16") <stem>.safetensors.index.<variant>.json or <stem>.<variant>.safetensors comes
  /// first. Throws
  /// Error(no_input) if a file is missing, Error(data) if one is damaged, the index names a file
  /// outside the folder, or a tensor is not in the file that the index names.
  static Checkpoint open(const std::filesystem::path& folder, std::string_view stem,
                         std::string_view variant = {});

  /// One whose tensors have the shapes that they are asked for, and no values: for a dry run
  /// (tensor/ledger.hpp), and to find out what a model needs. Their names and shapes are added to
  /// `asked`, which must outlive the checkpoint and its copies, unless it is null.
  static Checkpoint of_shapes(ExpectedShapes* asked = nullptr);

  /// The same checkpoint, whose tensors have no values: as of_shapes(), but which of them are
  /// stored in 8 bits is known.
  Checkpoint without_values() const;

  /// The same checkpoint, whose tensors are loaded to this device (default: the host), for layers
  /// that compute with these numerics.
  Checkpoint on(Device device, const Numerics& numerics = {}) const;
  Device device() const { return device_; }
  const Numerics& numerics() const { return numerics_; }

  /// The same checkpoint, whose weights are changed by these LoRAs when they are loaded: in
  /// float32, before they are rounded. Errors as LoraChanges.
  Checkpoint with(const std::vector<LoraFile>& loras) const;
  /// The same checkpoint, whose tensors have other values: those that `values` gives, float32 on
  /// the host, of the tensor's shape. It is called by load() and ask(), also in a dry run; what it
  /// gave can be read until several other tensors were asked for.
  using Values = std::function<Tensor(const std::string& name, const Shape& shape)>;
  Checkpoint with_values(Values values) const;
  /// The changes by LoRAs; nullptr: none.
  const LoraChanges* changes() const { return changes_.get(); }

  const std::filesystem::path& folder() const { return contents_->folder; }
  /// All tensors, by the names in the files; without a prefix such as "module." that all share.
  const TensorInfos& tensors() const { return contents_->tensors; }
  /// The files that hold the tensors, by their paths.
  const std::map<std::filesystem::path, SafetensorsFile>& files() const { return contents_->files; }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  /// Whether a tensor of the files says how others are stored: the scale of one that is here, or a
  /// mark of ComfyUI's files of float8.
  bool describes_others(const std::string& held_as) const;

  /// Says that the tensor will be read by read_rows(), perhaps later. Errors as load().
  void ask(const std::string& name, const Shape& expected) const;
  /// A copy of the tensor as `dtype`, rounded to nearest even, on device(). Throws Error(data) if
  /// it is missing, its shape is not `expected`, or its type is not one of loadable_types; if its
  /// scale has another shape.
  Tensor load(const std::string& name, const Shape& expected, DType dtype) const;
  /// Rows [begin, begin + count) of the leading axis; no other bytes are read. `expected` is the
  /// shape of the whole tensor. Errors as load().
  Tensor load_rows(const std::string& name, const Shape& expected, std::int64_t begin,
                   std::int64_t count, DType dtype) const;
  /// The same to the caller's host memory, with rows `stride` elements apart. Thread-safe.
  void read_rows(const std::string& name, const Shape& expected, std::int64_t begin,
                 std::int64_t count, DType dtype, void* into, std::int64_t stride) const;

  /// The rows of the tensor as they are stored, if that is in 8 bits, and their values times the
  /// factors are what load() rounds: no LoRA changes them. Errors as load().
  std::optional<Float8Rows> float8_rows(const std::string& name, const Shape& expected) const;

  /// Throws Error(data) for the first tensor that is missing, has another shape, or has a type that
  /// cannot be loaded. Reads no tensor data.
  void check(const ExpectedShapes& expected) const;
  Difference compare(const ExpectedShapes& expected) const;

 private:
  struct Contents {
    std::filesystem::path folder;
    std::map<std::filesystem::path, SafetensorsFile> files;
    TensorInfos tensors;  ///< without `prefix`
    std::string prefix;   ///< of all names in the files that those of the model do not have

    void remove_prefix();
    void add_file(const std::filesystem::path& path);
    void open_index(const std::filesystem::path& index);
  };

  explicit Checkpoint(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  const TensorInfos::value_type* find(const std::string& name) const;
  const TensorInfos::value_type& find(const std::string& name, const Shape& expected) const;
  const SafetensorsFile& tensor_file(const TensorInfo& info) const { return files().at(info.file); }
  /// The scale of a tensor by its name in the files; nullptr: it has none.
  const TensorInfos::value_type* scale_of(const std::string& held_as) const;
  /// The scales of rows [begin, begin + count); one for all of them if there is only one.
  std::vector<float> scales(const TensorInfos::value_type& scale, std::int64_t begin,
                            std::int64_t count) const;

  std::shared_ptr<const Contents> contents_;  ///< null of of_shapes()
  bool only_shapes_ = false;
  ExpectedShapes* asked_ = nullptr;
  std::shared_ptr<const LoraChanges> changes_;
  struct GivenValues;
  std::shared_ptr<GivenValues> given_;  ///< shared by copies; null: those of the files
  Device device_;
  Numerics numerics_;
};

}  // namespace reelmesh

#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weights/lora.hpp"

namespace reelmesh {

/// What LoRAs add to the tensors of a checkpoint. Sums are float32. An element of B·A adds its
/// products in the order of the rank; LoRAs are added in their order, each multiplied by factor ·
/// scale first. So the bits of an element do not depend on which rows are read together. A LoRA of
/// scale 0 is checked, and changes nothing.
class LoraChanges {
 public:
  /// One LoRA's change of one tensor.
  struct Term {
    const Lora* lora;
    const LoraModule* module;
    const std::string* added;  ///< the tensor of the file that is added; null: B·A
    float scale;               ///< that of the file, times the module's factor if it has one
    std::int64_t columns;      ///< of A
  };
  using Terms = std::vector<Term>;

  /// find: the tensor of the checkpoint with this current name, or nullptr. names: of all tensors
  /// of the checkpoint, for messages. Errors as Lora::open; Error(data) if tensors of a LoRA
  /// fit nothing in the checkpoint, or have another shape; but see left_out().
  using Find = std::function<const TensorInfos::value_type*(const std::string& name)>;
  LoraChanges(const std::vector<LoraFile>& files, const Find& find,
              const std::vector<std::string>& names);

  const std::vector<Lora>& loras() const { return loras_; }
  /// For people, what is not used since this transformer is another one than the LoRA was made for:
  /// layers for images, and changes of the embedding of patches of other channels.
  const std::vector<std::string>& left_out() const { return left_out_; }
  /// Of a tensor by its name in the checkpoint; nullptr if nothing changes it.
  const Terms* find(const std::string& name) const;
  /// Adds to rows [first, first + rows) of a tensor, of `row` elements each, which lie `stride`
  /// elements apart. Thread-safe.
  void add(const Terms& terms, std::int64_t first, std::int64_t rows, std::int64_t row,
           float* values, std::int64_t stride) const;
  /// The most elements of B for a row.
  static std::int64_t widest(const Terms& terms);

 private:
  using Panels = std::shared_ptr<const std::vector<float>>;
  class Fitting;  ///< of one LoRA
  Panels term_panels(const Term& term) const;

  std::vector<Lora> loras_;
  std::vector<std::string> left_out_;
  std::map<std::string, Terms> terms_;

  // The last used matrices A, in panels. Layers are read one after the other, so a few are enough.
  struct Kept {
    const Term* term;
    Panels panels;
  };
  mutable std::mutex mutex_;
  mutable std::vector<Kept> kept_;
};

/// Memory for changing weights by these LoRAs while they are read: of all threads together, and of
/// each.
struct LoraMemory {
  std::int64_t shared = 0, per_thread = 0;
};
/// Errors as Lora::open.
LoraMemory lora_memory(const std::vector<LoraFile>& files);
/// Of a LoRA that changes linear layers with up to so many inputs.
LoraMemory lora_memory(std::int64_t columns, std::int64_t rank);
LoraMemory operator+(const LoraMemory& a, const LoraMemory& b);

}  // namespace reelmesh

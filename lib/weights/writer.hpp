#pragma once
// Writes checkpoints in the layout of the Hugging Face hub, one tensor in memory at a time.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.hpp"

namespace reelmesh {

struct TensorToWrite {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
};

/// Fills tensor `index` of the list; `out` has its type and shape and is not initialised. Called
/// once for each tensor, in the order of the files' bytes, which is not that of the list.
using FillTensor = std::function<void(std::size_t index, Tensor& out)>;

/// Writes <stem>.safetensors, or, where the data are larger than `max_shard_bytes`, shards
/// <stem>-0000k-of-0000n.safetensors and their index. Every file is written under a temporary name,
/// flushed to disk and renamed, the index last; what the folder held under these names is replaced.
/// Throws Error(cannot_create) where the folder or a file cannot be created, Error(io) where
/// writing fails (a full disk); temporary files are then removed.
void write_safetensors(const std::filesystem::path& folder, std::string_view stem,
                       const std::vector<TensorToWrite>& tensors, const FillTensor& fill,
                       std::int64_t max_shard_bytes = 5'000'000'000);

}  // namespace reelmesh

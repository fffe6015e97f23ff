#pragma once
// Writes checkpoints in the layout of the Hugging Face hub, with one tensor in memory at a time.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/new_file.hpp"
#include "tensor/tensor.hpp"
#include "weights/header.hpp"

namespace reelmesh {

struct TensorToWrite {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
};

/// Bytes of data in a file, as in releases on the Hugging Face hub.
inline constexpr std::int64_t max_shard_bytes = 5'000'000'000;

/// Fills tensor `index` of the list; `out` has its type and shape and is uninitialised. Called once
/// per tensor, in the order of the bytes in the files, which can differ from that of the list.
using FillTensor = std::function<void(std::size_t index, Tensor& out)>;

/// Writes <stem>.safetensors or, if the data are larger than `max_bytes`, shards
/// <stem>-0000k-of-0000n.safetensors and their index. Every file is written under a temporary name,
/// flushed to disk (unless Flush::no) and renamed, the index last; existing files of these names
/// are replaced. Throws Error(cannot_create) if the folder or a file cannot be created, Error(io)
/// if writing fails (a full disk); temporary files are then removed. metadata: texts for the header
/// of each file, beside `format`.
void write_safetensors(const std::filesystem::path& folder, std::string_view stem,
                       const std::vector<TensorToWrite>& tensors, const FillTensor& fill,
                       std::int64_t max_bytes = max_shard_bytes, Flush flush = Flush::yes,
                       const FileMetadata& metadata = {});

}  // namespace reelmesh

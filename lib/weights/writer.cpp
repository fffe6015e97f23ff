#include "weights/writer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "base/new_file.hpp"
#include "base/units.hpp"
#include "weights/header.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Indices of tensors in the list, in the order of their bytes in the file.
using Shard = std::vector<std::size_t>;

std::int64_t tensor_bytes(const TensorToWrite& tensor) {
  return checked_product(numel(tensor.shape), size_of(tensor.dtype), tensor.name);
}

std::vector<Shard> cut_into_shards(const std::vector<TensorToWrite>& tensors,
                                   std::int64_t max_bytes) {
  std::vector<Shard> shards(1);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t more = tensor_bytes(tensors[i]);
    if (!shards.back().empty() && more > max_bytes - bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(i);
    bytes += more;
  }
  // Wide types first, so that every tensor is aligned for its type, which some readers rely on.
  for (Shard& shard : shards) {
    std::stable_sort(shard.begin(), shard.end(), [&](std::size_t a, std::size_t b) {
      return size_of(tensors[a].dtype) > size_of(tensors[b].dtype);
    });
  }
  return shards;
}

std::string shard_header(const Shard& shard, const std::vector<TensorToWrite>& tensors,
                         const FileMetadata& metadata) {
  json root = json::object();
  root["__metadata__"] = metadata;
  root["__metadata__"]["format"] = "pt";  // transformers rejects files without it
  std::int64_t begin = 0;
  for (const std::size_t i : shard) {
    const std::int64_t end = begin + tensor_bytes(tensors[i]);
    root[tensors[i].name] = {{"dtype", safetensors_dtype(tensors[i].dtype)},
                             {"shape", tensors[i].shape},
                             {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = root.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  expect(static_cast<std::int64_t>(text.size()) <= max_header_bytes, "a header of {} bytes",
         text.size());
  return text;
}

void write_shard(const fs::path& path, const Shard& shard,
                 const std::vector<TensorToWrite>& tensors, const FillTensor& fill,
                 const FileMetadata& metadata, Flush flush) {
  NewFile file(path, flush);
  const std::string header = shard_header(shard, tensors, metadata);
  const std::uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header);
  for (const std::size_t i : shard) {
    Tensor tensor = Tensor::empty(tensors[i].shape, tensors[i].dtype);
    fill(i, tensor);
    expect(tensor.shape() == tensors[i].shape && tensor.dtype() == tensors[i].dtype,
           "tensor '{}' was filled with another shape or type", tensors[i].name);
    file.write(tensor.raw(), static_cast<std::size_t>(tensor.bytes()));
  }
  file.commit();
}

void check_names(const std::vector<TensorToWrite>& tensors) {
  std::set<std::string> names;
  for (const TensorToWrite& tensor : tensors) {
    expect(tensor.name != "__metadata__" && names.insert(tensor.name).second,
           "tensor name '{}' is reserved or repeated", tensor.name);
  }
}

}  // namespace

void write_safetensors(const fs::path& folder, std::string_view stem,
                       const std::vector<TensorToWrite>& tensors, const FillTensor& fill,
                       std::int64_t max_bytes, Flush flush, const FileMetadata& metadata) {
  check_names(tensors);
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, Status::cannot_create, "{}: cannot be created: {}", folder.string(),
          error.message());

  const std::vector<Shard> shards = cut_into_shards(tensors, max_bytes);
  const fs::path index_path = folder / fmt::format("{}.safetensors.index.json", stem);
  if (shards.size() == 1) {
    write_shard(folder / fmt::format("{}.safetensors", stem), shards[0], tensors, fill, metadata,
                flush);
    fs::remove(index_path, error);  // readers would prefer an old index to the new file
    require(!error, Status::io, "{}: cannot be removed: {}", index_path.string(), error.message());
    return;
  }
  json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", json::object()}};
  std::int64_t total = 0;
  for (std::size_t k = 0; k < shards.size(); ++k) {
    const std::string name =
        fmt::format("{}-{:05}-of-{:05}.safetensors", stem, k + 1, shards.size());
    write_shard(folder / name, shards[k], tensors, fill, metadata, flush);
    for (const std::size_t i : shards[k]) {
      index["weight_map"][tensors[i].name] = name;
      total += tensor_bytes(tensors[i]);
    }
  }
  index["metadata"]["total_size"] = total;
  NewFile file(index_path, flush);
  file.write(index.dump(2) + "\n");
  file.commit();
}

}  // namespace reelmesh

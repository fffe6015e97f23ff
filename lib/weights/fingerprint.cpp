#include "weights/fingerprint.hpp"

#include <algorithm>
#include <map>

#include "base/hash.hpp"
#include "weights/checkpoint.hpp"
#include "weights/json.hpp"
#include "weights/mapped_file.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

void add_file(Hash& hash, const fs::path& file) {
  constexpr std::int64_t max_bytes = std::int64_t{1} << 28;
  std::error_code error;
  hash.add(file.filename().string());
  if (fs::is_regular_file(file, error)) hash.add(read_text(file, max_bytes));
}

void add_weights(Hash& hash, const Checkpoint& weights) {
  constexpr std::int64_t sample = 4096;
  std::map<fs::path, MappedFile> files;
  for (const auto& [name, info] : weights.tensors()) {
    hash.add(name);
    hash.add(info.dtype);
    for (const std::int64_t extent : info.shape) hash.add(extent);
    auto file = files.find(info.file);
    if (file == files.end()) file = files.emplace(info.file, MappedFile::open(info.file)).first;
    const std::int64_t count = std::min(sample, info.bytes);
    for (const std::int64_t begin : {std::int64_t{0}, (info.bytes - count) / 2}) {
      hash.add(file->second.copy(info.begin + begin, count));
    }
  }
}

}  // namespace

std::string model_fingerprint(const ModelPaths& paths) {
  Hash hash;
  for (const fs::path& file :
       {paths.transformer / "config.json", paths.vae / "config.json",
        paths.text_encoder / "config.json", paths.scheduler / "scheduler_config.json",
        paths.tokenizer / "spiece.model", paths.tokenizer / "tokenizer_config.json",
        paths.tokenizer / "added_tokens.json"}) {
    add_file(hash, file);
  }
  add_weights(hash, paths.open_transformer());
  add_weights(hash, paths.open_vae());
  add_weights(hash, paths.open_text_encoder());
  return hash.hex();
}

}  // namespace reelmesh

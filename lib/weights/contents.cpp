#include "weights/contents.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "weights/file_cache.hpp"
#include "weights/json.hpp"
#include "weights/lora_changes.hpp"
#include "weights/tokenizer_file.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

void add_file(Hash& hash, const fs::path& file) {
  constexpr std::int64_t max_bytes = std::int64_t{1} << 28;
  std::error_code error;
  hash.add(file.filename().string());
  if (fs::is_regular_file(file, error)) hash.add(read_text(file, max_bytes));
}

}  // namespace

ModelContents::ModelContents(const ModelPaths& paths) {
  Hash outline;
  std::vector<ModelPart> by_name = paths.parts();
  for (const ModelPart part : by_name) add_file(outline, paths.folder(part) / "config.json");
  for (const fs::path& file :
       {paths.scheduler / "scheduler_config.json", paths.tokenizer / "spiece.model",
        paths.tokenizer / "tokenizer_config.json", paths.tokenizer / "added_tokens.json"}) {
    add_file(outline, file);
  }
  // Only where it decides, so that hashes of other folders are those of earlier versions.
  const fs::path tokenizer = tokenizer_file(paths);
  if (tokenizer.filename() == "tokenizer.json") add_file(outline, tokenizer);
  std::ranges::sort(by_name, {},
                    [](ModelPart part) { return std::string_view(part_folder(part)); });
  for (const ModelPart part : by_name) parts_.push_back(paths.open(part));
  int applied = 0;
  for (const Checkpoint& part : parts_) {
    const LoraChanges* changes = part.changes();
    if (changes == nullptr) continue;
    for (std::size_t i = 0; i < changes->loras().size(); ++i) {
      if (paths.loras[i].scale == 0) continue;  // results do not depend on it
      const Lora& lora = changes->loras()[i];
      add_tensors(outline, fmt::format("lora/{:03}/", applied++), {{lora.path(), &lora.file()}},
                  lora.file().tensors());
      for (const auto& [name, module] : lora.modules()) {
        outline.add(name);
        outline.add(fmt::format("{:a}", module.factor * paths.loras[i].scale));
      }
    }
  }
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    std::map<fs::path, const SafetensorsFile*> files;
    for (const auto& [path, file] : parts_[part].files()) files.emplace(path, &file);
    add_tensors(outline, fmt::format("{}/", part_folder(by_name[part])), files,
                parts_[part].tensors());
  }
  outline_ = outline.hex();
}

void ModelContents::add_tensors(Hash& outline, const std::string& prefix,
                                const std::map<fs::path, const SafetensorsFile*>& files,
                                const TensorInfos& tensors) {
  std::map<fs::path, std::size_t> file_indices;
  for (const auto& [path, file] : files) {
    file_indices.emplace(path, files_.size());
    files_.push_back({&file->bytes(), sample_hash(file->bytes())});
  }
  for (const auto& [name, info] : tensors) {
    tensors_.push_back({prefix + name, &info, file_indices.at(info.file)});
    outline.add(tensors_.back().name);
    outline.add(info.dtype);
    outline.add(std::ssize(info.shape));
    for (const std::int64_t extent : info.shape) outline.add(extent);
  }
}

std::string ModelContents::identity() const {
  Hash hash;
  for (const File& file : files_) {
    hash.add(file.bytes->state().text());
    hash.add(file.sample);
  }
  return hash.hex();
}

std::string ModelContents::tensor_hash(const TensorBytes& tensor) const {
  constexpr std::int64_t chunk = std::int64_t{256} << 10;
  const RegularFile& file = *files_[tensor.file].bytes;
  std::string buffer(static_cast<std::size_t>(std::min(chunk, tensor.info->bytes)), '\0');
  Hash hash;
  for (std::int64_t done = 0; done < tensor.info->bytes; done += chunk) {
    const std::int64_t count = std::min(chunk, tensor.info->bytes - done);
    file.read_part(tensor.info->begin + done, count, buffer.data());
    hash.add_bytes({buffer.data(), static_cast<std::size_t>(count)});
  }
  file.require_unchanged();
  return hash.hex();
}

std::string ModelContents::hash(const TensorHashes& hashes) const {
  expect(hashes.size() == tensors_.size(), "{} hashes of {} tensors", hashes.size(),
         tensors_.size());
  Hash all;
  all.add(outline_);
  for (const std::string& hash : hashes) {
    expect(hash.size() == Hash::digits, "a tensor without a hash");
    all.add(hash);
  }
  return all.hex();
}

std::vector<int> divide_by_bytes(const std::vector<std::int64_t>& bytes, int ranks) {
  // By the middle of each item, in floating point: sizes may add up to almost 2^63.
  const double total = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  std::vector<int> owner;
  double before = 0;
  for (const std::int64_t count : bytes) {
    const double middle = before + static_cast<double>(count) / 2;
    owner.push_back(total > 0 ? std::min(ranks - 1, static_cast<int>(middle / total * ranks)) : 0);
    before += static_cast<double>(count);
  }
  return owner;
}

}  // namespace reelmesh

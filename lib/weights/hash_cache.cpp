#include "weights/hash_cache.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace reelmesh {
namespace {

using nlohmann::json;

bool is_hash(const json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  return text.size() == Hash::digits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

HashCache::HashCache(const std::filesystem::path& folder, std::chrono::milliseconds settling)
    : files_("XXH3-128 of tensors, 3", folder, settling) {}

TensorHashes HashCache::find(const ModelContents& model) const {
  TensorHashes hashes(model.tensors().size());
  std::vector<json> known;  // of each file
  for (const auto& [bytes, sample] : model.files()) known.push_back(files_.find(*bytes, sample));
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const ModelContents::TensorBytes& tensor = model.tensors()[i];
    const json& entry = known[tensor.file];
    if (!entry.is_object()) continue;
    const auto found = entry.find(tensor.name);
    if (found != entry.end() && is_hash(*found)) hashes[i] = found->get<std::string>();
  }
  return hashes;
}

std::string HashCache::store(const ModelContents& model, const TensorHashes& hashes) const {
  std::vector<json> tensors(model.files().size(), json::object());
  std::vector<bool> is_new(model.files().size(), false);
  const TensorHashes known = find(model);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const ModelContents::TensorBytes& tensor = model.tensors()[i];
    tensors[tensor.file][tensor.name] = hashes[i];
    if (known[i] != hashes[i]) is_new[tensor.file] = true;
  }
  std::string first_error;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_new[i]) continue;
    try {
      const auto& [bytes, sample] = model.files()[i];
      files_.store(*bytes, sample, std::move(tensors[i]));
    } catch (const std::exception& error) {
      if (first_error.empty()) first_error = error.what();
    }
  }
  return first_error;
}

}  // namespace reelmesh

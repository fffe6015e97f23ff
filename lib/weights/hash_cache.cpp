#include "weights/hash_cache.hpp"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/new_file.hpp"
#include "base/utf8.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* format = "XXH3-128 of tensors, 2";

std::string time_text(const FileState::Time& time) {
  return fmt::format("{}.{:09}", time.seconds, time.nanoseconds);
}

/// What an entry says of its weight file. path: with links resolved.
json description(const fs::path& path, const ModelContents::File& file) {
  const FileState& state = file.bytes->state();
  return {{"path", as_utf8(path.string())},
          {"inode", state.inode},
          {"size", state.size},
          {"modified", time_text(state.modified)},
          {"changed", time_text(state.changed)},
          {"sample", file.sample}};
}

bool is_hash(const json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  return text.size() == Hash::digits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// A hash of an entry without its own "check", which tells whether the entry is undamaged.
std::string entry_hash(const json& entry) {
  Hash hash;
  hash.add(entry.dump());
  return hash.hex();
}

/// The member "tensors" of an entry: name → hash.
json read_entry(const fs::path& entry, const json& file) {
  constexpr std::int64_t max_bytes = std::int64_t{64} << 20;
  // Not with read_text(): other jobs may replace the entry meanwhile.
  const RegularFile opened = RegularFile::open(entry);
  if (opened.size() > max_bytes) return {};
  const std::string text = opened.copy(0, opened.size());
  json root = parse_json(text, entry.string(), {.depth = 2, .values = max_tensors + 16});
  if (!root.is_object()) return {};
  const json check = root.value("check", json());
  root.erase("check");
  if (root.value("format", json()) != format || root.value("file", json()) != file ||
      check != entry_hash(root)) {
    return {};
  }
  return root.value("tensors", json());
}

}  // namespace

HashCache HashCache::of_user() {
  for (const auto& [variable, below] :
       {std::pair{"XDG_CACHE_HOME", "reelmesh/hashes"}, {"HOME", ".cache/reelmesh/hashes"}}) {
    const char* value = std::getenv(variable);
    const fs::path folder = value != nullptr ? value : "";
    if (folder.is_absolute()) return HashCache(folder / below);
  }
  return HashCache({});
}

fs::path HashCache::entry_path(const fs::path& file) const {
  Hash hash;
  hash.add(file.string());
  return folder_ / (hash.hex() + ".json");
}

TensorHashes HashCache::find(const ModelContents& model) const {
  TensorHashes hashes(model.tensors().size());
  if (folder_.empty()) return hashes;
  std::vector<json> known;  // of each file
  for (const ModelContents::File& file : model.files()) {
    try {
      const fs::path path = fs::canonical(file.bytes->path());
      known.push_back(read_entry(entry_path(path), description(path, file)));
    } catch (const std::exception&) {
      known.emplace_back();
    }
  }
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
  if (folder_.empty()) return {};
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
      write_entry(model.files()[i], std::move(tensors[i]), model.opened());
    } catch (const std::exception& error) {
      if (first_error.empty()) first_error = error.what();
    }
  }
  return first_error;
}

void HashCache::write_entry(const ModelContents::File& file, nlohmann::json tensors,
                            std::chrono::system_clock::time_point opened) const {
  using std::chrono::nanoseconds, std::chrono::seconds;
  const nanoseconds settled = opened.time_since_epoch() - settling_;
  const auto whole = std::chrono::floor<seconds>(settled);
  if (file.bytes->state().changed >= FileState::Time{whole.count(), (settled - whole).count()})
    return;
  if (file.bytes->state_now() != file.bytes->state()) return;
  const fs::path path = fs::canonical(file.bytes->path());
  json entry{{"format", format}, {"file", description(path, file)}};
  entry["tensors"] = std::move(tensors);
  entry["check"] = entry_hash(entry);
  fs::create_directories(folder_);
  NewFile out(entry_path(path));
  out.write(entry.dump(1) + "\n");
  out.commit();
}

}  // namespace reelmesh

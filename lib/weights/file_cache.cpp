#include "weights/file_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hash.hpp"
#include "base/new_file.hpp"
#include "base/utf8.hpp"
#include "weights/json.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string time_text(const FileState::Time& time) {
  return fmt::format("{}.{:09}", time.seconds, time.nanoseconds);
}

/// What an entry says of its file. path: with links resolved.
json description(const fs::path& path, const RegularFile& file, const std::string& sample) {
  const FileState& state = file.state();
  return {{"path", as_utf8(path.string())},
          {"inode", state.inode},
          {"size", state.size},
          {"modified", time_text(state.modified)},
          {"changed", time_text(state.changed)},
          {"sample", sample}};
}

fs::path entry_path(const fs::path& folder, const fs::path& file) {
  Hash hash;
  hash.add(file.string());
  return folder / (hash.hex() + ".json");
}

/// A hash of an entry without its own "check", which tells whether the entry is undamaged.
std::string entry_hash(const json& entry) {
  Hash hash;
  hash.add(entry.dump());
  return hash.hex();
}

}  // namespace

std::string sample_hash(const RegularFile& file) {
  constexpr std::int64_t blocks = 16, block_bytes = 4096;
  const std::int64_t bytes = std::min(block_bytes, file.size());
  Hash hash;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t end = file.size() - bytes, last = blocks - 1;
    hash.add(file.copy(end / last * i + end % last * i / last, bytes));
  }
  return hash.hex();
}

fs::path FileCache::folder_of_user(std::string_view name) {
  for (const auto& [variable, below] :
       {std::pair{"XDG_CACHE_HOME", "reelmesh"}, {"HOME", ".cache/reelmesh"}}) {
    const char* value = std::getenv(variable);
    const fs::path folder = value != nullptr ? value : "";
    if (folder.is_absolute()) return folder / below / name;
  }
  return {};
}

namespace {

// Entries are objects of values, which may be lists.
constexpr JsonLimits entry_limits{.depth = 3};

}  // namespace

/// What is remembered of a file, whose path has its links resolved; an empty object if nothing is.
/// Errors of reading.
json FileCache::entry(const fs::path& file) const {
  constexpr std::int64_t max_bytes = std::int64_t{64} << 20;
  const fs::path path = entry_path(folder_, file);
  // Not with read_text(): other jobs may replace the entry meanwhile.
  const RegularFile opened = RegularFile::open(path);
  if (opened.size() > max_bytes) return json::object();
  const std::string text = opened.copy(0, opened.size());
  json root = parse_json(text, path.string(), entry_limits);
  if (!root.is_object()) return json::object();
  const json check = root.value("check", json());
  root.erase("check");
  const bool is_whole = root.value("format", json()) == format_ && check == entry_hash(root);
  return is_whole ? root : json::object();
}

json FileCache::find(const RegularFile& file, const std::string& sample) const {
  if (folder_.empty()) return {};
  try {
    const fs::path path = fs::canonical(file.path());
    const json found = entry(path);
    return found.value("file", json()) == description(path, file, sample)
               ? found.value("values", json())
               : json();
  } catch (const std::exception&) {
    return {};
  }
}

json FileCache::find_missing(const fs::path& file) const {
  if (folder_.empty()) return {};
  try {
    if (fs::exists(file)) return {};
    const fs::path path = fs::weakly_canonical(fs::absolute(file));
    const json found = entry(path);
    return found.value("file", json::object()).value("path", "") == as_utf8(path.string())
               ? found.value("values", json())
               : json();
  } catch (const std::exception&) {
    return {};
  }
}

void FileCache::store(const RegularFile& file, const std::string& sample, json values) const {
  using std::chrono::nanoseconds, std::chrono::seconds;
  if (folder_.empty()) return;
  const nanoseconds settled = file.opened().time_since_epoch() - settling_;
  const auto whole = std::chrono::floor<seconds>(settled);
  if (file.state().changed >= FileState::Time{whole.count(), (settled - whole).count()}) return;
  if (file.state_now() != file.state()) return;
  const fs::path path = fs::canonical(file.path());
  json entry{{"format", format_}, {"file", description(path, file, sample)}};
  entry["values"] = std::move(values);
  entry["check"] = entry_hash(entry);
  const std::string text = entry.dump(1) + "\n";
  parse_json(text, entry_path(folder_, path).string(), entry_limits);  // or entry() would ignore it
  fs::create_directories(folder_);
  NewFile out(entry_path(folder_, path));
  out.write(text);
  out.commit();
}

}  // namespace reelmesh

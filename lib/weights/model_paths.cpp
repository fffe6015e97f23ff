#include "weights/model_paths.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "weights/checkpoint.hpp"
#include "weights/json.hpp"
#include "weights/tokenizer_file.hpp"

namespace reelmesh {
namespace {

namespace fs = std::filesystem;

bool is_inside(const fs::path& path, const fs::path& folder) {
  return std::ranges::mismatch(folder, path).in1 == folder.end();
}

/// models--ORG--NAME/blobs for a folder in models--ORG--NAME/snapshots; empty for other folders.
fs::path blobs_of_hub(const fs::path& folder) {
  for (fs::path path = folder; path.has_relative_path(); path = path.parent_path()) {
    const fs::path model = path.parent_path().parent_path();
    if (path.parent_path().filename() != "snapshots") continue;
    if (model.filename().string().starts_with("models--")) return model / "blobs";
  }
  return {};
}

/// Checks a path of the checkpoint in the folder `root`, which may be a link itself.
void check_link(const fs::path& path, const fs::path& root, const std::string& hint) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return;
  const fs::path target = fs::canonical(path, error);
  if (error) return;  // it leads nowhere
  const fs::path folder = fs::canonical(root, error);
  if (error || is_inside(target, folder)) return;
  const fs::path blobs = blobs_of_hub(folder);
  if (!blobs.empty() && is_inside(target, blobs)) return;
  fail(Status::data, "{}: is a link to {}, expected a path within {} ({})", path.string(),
       fs::read_symlink(path, error).string(), root.string(), hint);
}

// The cache of the Hugging Face hub; empty if the user has none.
fs::path hub_cache() {
  for (const auto& [variable, below] : {std::pair{"HF_HUB_CACHE", ""},
                                        {"HF_HOME", "hub"},
                                        {"XDG_CACHE_HOME", "huggingface/hub"},
                                        {"HOME", ".cache/huggingface/hub"}}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') return fs::path(value) / below;
  }
  return {};
}

/// Whether a path has the form of a model's name on the hub, "ORG/NAME".
bool is_hub_name(const fs::path& path) {
  const std::string text = path.string();
  const std::size_t slash = text.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < text.size() &&
         text.find('/', slash + 1) == std::string::npos && text[0] != '.' && text[0] != '~';
}

/// The snapshot in a folder models--ORG--NAME: the one that refs/main names, or the only one. The
/// folder itself if it has none, or several.
fs::path snapshot_in(const fs::path& folder) {
  std::error_code error;
  const fs::path snapshots = folder / "snapshots", main = folder / "refs" / "main";
  if (!fs::is_directory(snapshots, error)) return folder;
  constexpr std::int64_t max_ref_bytes = 1024;
  if (fs::is_regular_file(main, error)) {
    try {
      std::string commit = read_text(main, max_ref_bytes);
      commit.erase(std::min(commit.find_first_of(" \r\n"), commit.size()));
      const bool plain = commit.find_first_not_of("0123456789abcdef") == std::string::npos;
      if (plain && !commit.empty() && fs::is_directory(snapshots / commit, error)) {
        return snapshots / commit;
      }
    } catch (const Error&) {
      // The folders tell it.
    }
  }
  std::vector<fs::path> found;
  for (fs::directory_iterator it(snapshots, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory(error)) found.push_back(it->path());
  }
  return found.size() == 1 ? found.front() : folder;
}

/// Where the model or the part really is that the user gives as `path`.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error)) return snapshot_in(path);
  const fs::path cache = hub_cache();
  if (cache.empty() || !is_hub_name(path)) return path;
  const fs::path folder =
      cache / fmt::format("models--{}--{}", path.parent_path().string(), path.filename().string());
  return fs::is_directory(folder, error) ? snapshot_in(folder) : path;
}

/// What a path is that is no model, and what to do; empty if that is not known.
std::string what_it_is_instead(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return is_hub_name(path) ? fmt::format(
                                   "; if it is a model of the Hugging Face hub: "
                                   "\"hf download {} --local-dir DIR\", and give DIR",
                                   path.string())
                             : "";
  }
  if (!fs::is_directory(path, error)) {
    return "; it is a file, expected the folder of a model with model_index.json and a folder for "
           "each part";
  }
  if (fs::is_directory(path / "snapshots", error)) {
    return "; it is a folder of the hub's cache, which has several snapshots or none: give one of "
           "snapshots/";
  }
  if (fs::exists(path.parent_path() / "model_index.json", error)) {
    return fmt::format("; it is a part of the model in {}", path.parent_path().string());
  }
  bool has_pickles = false;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    has_pickles = has_pickles || it->path().extension() == ".pth";
  }
  std::string text;
  if (fs::exists(path / "config.json", error)) {
    try {
      text = class_named_in(Config::read(path / "config.json"));
    } catch (const Error&) {
      text.clear();
    }
  }
  if (has_pickles || text.starts_with("STDiT")) {
    return "; a release of Open-Sora is converted first: tools/convert_open_sora.py --help";
  }
  return "";
}

void need_folder(const fs::path& folder, const char* option) {
  std::error_code unreadable;
  require(fs::is_directory(folder, unreadable), Status::no_input, "{}: folder {} not found", option,
          folder.string());
}

// Whether model_index.json names this folder's part. Without a readable one, which is an error
// later, it names none.
bool is_named(const ModelPaths& paths, const ModelFolder& folder) {
  try {
    return !class_in_index(paths, folder.name).empty();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

const ModelFolder& model_folder(ModelPart part) {
  const auto* const found =
      std::ranges::find(model_folders, std::optional(part), &ModelFolder::part);
  expect(found != model_folders.end(), "part {} of models has no row in model_folders",
         static_cast<int>(part));
  return *found;
}

void ModelPaths::complete() {
  if (!root.empty()) root = resolved(root);
  for (const ModelFolder& folder : model_folders) {
    fs::path& path = this->*folder.path;
    if (!path.empty()) {
      path = resolved(path);
    } else if (!folder.optional || is_named(*this, folder)) {
      path = root / folder.name;
    }
  }
}

void ModelPaths::check_links() const {
  check_link(root / "model_index.json", root, "copy the file");
  const auto check_part = [&](const fs::path& part, const char* option) {
    const bool own =
        part.lexically_normal().parent_path() != (root / "part").lexically_normal().parent_path();
    const fs::path& checkpoint = own ? part : root;
    if (!own) check_link(part, root, fmt::format("{} takes a folder elsewhere", option));
    std::error_code error;
    for (fs::directory_iterator it(part, error), end; !error && it != end; it.increment(error)) {
      check_link(it->path(), checkpoint, "copy the file");
    }
  };
  for (const ModelFolder& folder : model_folders) {
    const fs::path& path = this->*folder.path;
    if (!path.empty()) check_part(path, folder.option);
  }
}

void ModelPaths::check_root() const {
  std::error_code unreadable;
  require(fs::is_directory(root, unreadable), Status::no_input, "model.path: folder {} not found{}",
          root.string(), what_it_is_instead(root));
  const fs::path index = root / "model_index.json";
  require(fs::exists(fs::symlink_status(index, unreadable)), Status::no_input, "{}: not found{}",
          index.string(), what_it_is_instead(root));
}

void ModelPaths::need(ModelPart part) const {
  const ModelFolder& row = model_folder(part);
  need_folder(has(part) ? folder(part) : root / row.name, row.option);
}

void ModelPaths::check() const {
  std::error_code unreadable;  // a folder above may be closed to this user
  need_folder(root, "model.path");
  for (const ModelFolder& folder : model_folders) {
    const fs::path& path = this->*folder.path;
    require(!folder.optional || path.empty() || is_named(*this, folder), Status::usage,
            "{}: found '{}', expected none: the model in {} has no {}", folder.option,
            path.string(), root.string(), folder.name);
    const bool may_lack =
        folder.optional ? path.empty() : without_weights && folder.path == &ModelPaths::tokenizer;
    if (!may_lack) need_folder(path, folder.option);
  }
  if (!variant.empty()) {
    const bool any = std::ranges::any_of(parts(), [&](ModelPart part) {
      return !has_weights(part) ||
             !weight_files(folder(part), weights_stem(part), variant).path.empty();
    });
    require(any, Status::no_input,
            "model.variant: found '{}', but no part of {} has such files, expected "
            "{}.{}.safetensors in one of them, for example",
            printable(variant), root.string(), weights_stem(ModelPart::transformer),
            printable(variant));
  }
  for (const auto& [files, option] :
       {std::pair{&loras, "model.lora"}, std::pair{&loras_2, "model.lora-2"}}) {
    for (const LoraFile& lora : *files) {
      require(std::filesystem::exists(lora.path, unreadable), Status::no_input, "{}: {} not found",
              option, lora.path.string());
    }
  }
}

const fs::path& ModelPaths::folder(ModelPart part) const { return this->*model_folder(part).path; }

std::vector<ModelPart> ModelPaths::parts() const {
  std::vector<ModelPart> found;
  std::ranges::copy_if(model_parts, std::back_inserter(found),
                       [&](ModelPart part) { return has(part); });
  return found;
}

bool ModelPaths::has_weights(ModelPart part) const {
  if (!without_weights) return true;
  std::error_code error;
  for (fs::directory_iterator it(folder(part), error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".safetensors") return true;
  }
  return false;
}

bool ModelPaths::has_tokenizer() const {
  std::error_code error;
  return !without_weights || fs::exists(tokenizer_file(*this), error);
}

std::string class_in_index(const ModelPaths& paths, const std::string& part) {
  const fs::path index = paths.root / "model_index.json";
  std::error_code error;
  if (!fs::exists(index, error)) return "";
  const auto parts = read_model_index(index).parts;
  const auto found = parts.find(part);
  return found == parts.end() ? "" : found->second.class_name;
}

NamedClass class_of_part(const ModelPaths& paths, const std::string& part, const Config& config) {
  if (config.file().parent_path() == paths.root / part) {
    const std::string name = class_in_index(paths, part);
    const std::string index = (paths.root / "model_index.json").string();
    if (!name.empty()) return {printable(name), fmt::format("{}: {}", index, part)};
  }
  const std::string name = class_named_in(config);
  return {name.empty() ? "(none)" : printable(name), config.file().string()};
}

const std::vector<LoraFile>& ModelPaths::loras_of(ModelPart part) const {
  static const std::vector<LoraFile> none;
  if (part == ModelPart::transformer_2) return loras_2;
  return part == ModelPart::transformer ? loras : none;
}

std::string ModelPaths::text() const {
  std::string text = root.string();
  const char* before = " with LoRA ";
  const auto add = [&](const LoraFile& lora, const char* of) {
    text += before + lora.path.string() + of;
    if (lora.scale != 1) text += fmt::format(" (scale {})", lora.scale);
    before = ", ";
  };
  for (const LoraFile& lora : loras) add(lora, "");
  for (const LoraFile& lora : loras_2) add(lora, " of the second transformer");
  return text;
}

Checkpoint ModelPaths::open(ModelPart part) const {
  return Checkpoint::open(folder(part), weights_stem(part), variant).with(loras_of(part));
}

}  // namespace reelmesh

#include "preset.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/nearest.hpp"
#include "models/checkpoints/random_model.hpp"

namespace reelmesh::app {

ModelPreset find_preset(const std::string& given) {
  const std::vector<std::string> names = preset_names();
  for (const std::string& name : names) {
    if (name == given) return model_preset(name);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  fail(Status::usage, "unknown preset '{}'{} (presets: {})", given,
       did_you_mean("", nearest(given, names)), list);
}

PresetFolder::PresetFolder() {
  std::error_code error;
  std::string name =
      (std::filesystem::temp_directory_path(error) / "reelmesh-preset-XXXXXX").string();
  require(::mkdtemp(name.data()) != nullptr, Status::cannot_create, "--preset: {}: {}", name,
          std::strerror(errno));
  path_ = name;
}

PresetFolder::PresetFolder(const std::string& preset) : PresetFolder() {
  preset_ = preset;
  write_configs(find_preset(preset), path_, Flush::no);
}

PresetFolder::~PresetFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string PresetFolder::named(std::string message) const {
  const std::string folder = path_.string();
  for (std::size_t at = 0; (at = message.find(folder, at)) != message.npos;) {
    message.replace(at, folder.size(), preset_);
  }
  return message;
}

}  // namespace reelmesh::app

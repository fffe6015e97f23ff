#pragma once
#include <filesystem>
#include <string>

#include "models/checkpoints/presets.hpp"

namespace reelmesh::app {

/// Error(usage) for an unknown name, with those that are known.
ModelPreset find_preset(const std::string& given);

/// A temporary folder with the configs of a preset, for a plan; it ends with the object.
/// Error(cannot_create) if it cannot be made, and errors as find_preset and write_configs.
class PresetFolder {
 public:
  /// Stands for it where the plan tells how to make the job.
  static constexpr const char* instead = "/path/to/MODEL";

  explicit PresetFolder(const std::string& preset);
  ~PresetFolder();
  PresetFolder(const PresetFolder&) = delete;
  PresetFolder& operator=(const PresetFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// A message with the preset's name in place of the folder.
  std::string named(std::string message) const;

 private:
  PresetFolder();  // empty

  std::string preset_;
  std::filesystem::path path_;
};

}  // namespace reelmesh::app

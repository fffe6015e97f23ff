#pragma once
#include <string_view>
#include <vector>

namespace reelmesh {

/// The texts of presets/*.json, compiled in (preset_files.cpp.in).
extern const std::vector<std::string_view> preset_files;

}  // namespace reelmesh

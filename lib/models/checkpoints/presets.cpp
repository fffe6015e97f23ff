#include "models/checkpoints/presets.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "models/checkpoints/preset_files.hpp"

namespace reelmesh {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct Presets {
  std::vector<std::string> names;  // for users, in the order of the files
  json entries = json::object();   // of all files, by name
};

const Presets& presets() {
  static const Presets all = [] {
    Presets found;
    for (const std::string_view text : preset_files) {
      const auto file = ordered_json::parse(text);
      for (const auto& [kind, entries] : file.items()) {
        for (const auto& [name, entry] : entries.items()) {
          expect(!found.entries.contains(name), "two presets are named '{}'", name);
          found.entries[name] = entry;
          if (kind == "presets") found.names.push_back(name);
        }
      }
    }
    return found;
  }();
  return all;
}

// An entry with those that it is like.
json whole(const std::string& name) {
  json entry = presets().entries.at(name);
  json result = json::object();
  for (const json& base : entry.value("like", json::array())) {
    result.update(whole(base), /*merge_objects=*/true);
  }
  entry.erase("like");
  result.update(entry, /*merge_objects=*/true);
  return result;
}

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    if (name_of(dtype) == name) return dtype;
  }
  fail(Status::internal, "no dtype '{}' of weights", name);
}

}  // namespace

std::vector<std::string> preset_names() { return presets().names; }

ModelPreset model_preset(std::string_view name) {
  require(std::ranges::count(presets().names, name) == 1, Status::internal, "no preset '{}'", name);
  ModelPreset preset;
  preset.name = name;
  const json found = whole(preset.name);
  preset.dtype = dtype_named(found.at("dtype"));
  found.at("tokenizer_pieces").get_to(preset.tokenizer_pieces);
  preset.model_index = found.at("model_index");
  for (const ModelPart part : model_parts) {
    const ModelFolder& folder = model_folder(part);
    if (!folder.optional || found.contains(folder.name)) {
      preset.parts[part] = found.at(folder.name);
    }
  }
  preset.scheduler = found.at("scheduler");
  preset.image_processor = found.value("image_processor", json());
  const std::size_t others = preset.image_processor.is_null() ? 4 : 5;
  expect(found.size() == others + preset.parts.size(), "preset '{}' has keys that nothing reads",
         name);
  const json second = preset.model_index.value(part_folder(ModelPart::transformer_2), json());
  if (!second.empty() && second.front().is_string()) {
    preset.parts[ModelPart::transformer_2] = preset.parts[ModelPart::transformer];
  }
  return preset;
}

}  // namespace reelmesh

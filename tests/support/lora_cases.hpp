#pragma once
// The LoRAs of tests/data/lora and tests/data/wan/lora, alone and together.
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "support/data_folder.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh::test {

/// Files and scales, and the name of what diffusers and PEFT make of them, or what they are merged
/// to by hand (make_lora_data.py, make_wan_lora_data.py).
struct LoraCase {
  const char* name;
  std::vector<std::pair<const char*, double>> files;
  const char* folder = "lora";             ///< of the files and of reference.safetensors
  const char* model = "cogvideox/sincos";  ///< that they change

  std::filesystem::path data() const { return data_folder() / folder; }
  std::vector<LoraFile> loras() const {
    std::vector<LoraFile> list;
    for (const auto& [file, scale] : files) list.push_back({data() / file, scale});
    return list;
  }
};

inline void PrintTo(const LoraCase& c, std::ostream* out) { *out << c.name; }

inline std::vector<LoraCase> lora_cases() {
  return {{"metadata", {{"metadata.safetensors", 1}}},
          {"no_metadata", {{"no_metadata.safetensors", 0.5}}},
          {"down_up", {{"down_up.safetensors", 1}}},
          {"processors", {{"processors.safetensors", -1.25}}},
          {"adapter_alone", {{"adapter_alone.safetensors", 1}}},
          {"peft", {{"peft", 1}}},
          {"several",
           {{"metadata.safetensors", 0.7},
            {"no_metadata.safetensors", 1.5},
            {"processors.safetensors", -0.4}}}};
}

inline std::vector<LoraCase> wan_lora_cases() {
  std::vector<LoraCase> cases{{"diffusers", {{"diffusers.safetensors", 1}}},
                              {"causvid", {{"causvid.safetensors", 0.5}}},
                              {"lightx2v", {{"lightx2v.safetensors", 1}}},
                              {"musubi", {{"musubi.safetensors", -0.75}}},
                              {"distilled", {{"distilled.safetensors", 0.5}}}};
  for (LoraCase& one : cases) {
    one.folder = "wan/lora";
    one.model = "wan/float32";
  }
  return cases;
}

inline std::string name_of_case(const testing::TestParamInfo<LoraCase>& info) {
  return info.param.name;
}

}  // namespace reelmesh::test

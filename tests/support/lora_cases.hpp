#pragma once
// The LoRAs of tests/data/lora, alone and together.
#include <gtest/gtest.h>

#include <ostream>
#include <utility>
#include <vector>

#include "support/data_folder.hpp"
#include "weights/model_paths.hpp"

namespace reelmesh::test {

/// Files and scales, and the name of what diffusers and PEFT make of them (make_lora_data.py).
struct LoraCase {
  const char* name;
  std::vector<std::pair<const char*, double>> files;

  std::vector<LoraFile> loras() const {
    std::vector<LoraFile> list;
    for (const auto& [file, scale] : files) list.push_back({data_folder() / "lora" / file, scale});
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

inline std::string name_of_case(const testing::TestParamInfo<LoraCase>& info) {
  return info.param.name;
}

}  // namespace reelmesh::test

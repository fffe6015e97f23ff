#pragma once
// The reference data of tests/data/cogvideox (see its README), made by tools/reference.
#include <gtest/gtest.h>

#include "models/cogvideox/config.hpp"
#include "models/t5/t5.hpp"
#include "support/data_folder.hpp"
#include "support/random_tensor.hpp"
#include "weights/json.hpp"

namespace reelmesh::test {

struct Reference {
  explicit Reference(const std::string& kind)
      : folder(data_folder() / "cogvideox" / kind),
        results(Checkpoint::open(folder, "reference")),
        facts(parse_json(read_text(folder / "reference.json", 1 << 20), "reference.json")),
        transformer(CogVideoXConfig::read(Config::read(folder / "transformer" / "config.json"))),
        vae(CogVideoXVaeConfig::read(Config::read(folder / "vae" / "config.json"))),
        t5(T5Config::read(Config::read(folder / "text_encoder" / "config.json"))) {
    const auto errors = parse_json(read_text(folder.parent_path() / "bf16_errors.json", 1 << 20),
                                   "bf16_errors.json");
    bfloat16_errors = errors.contains(kind) ? errors[kind] : errors.at("kinds").at(kind);
  }

  /// A stored result as float32, in its stored shape.
  Tensor get(const std::string& name) const {
    return results.load(name, results.tensors().at(name).shape, DType::float32);
  }

  std::filesystem::path folder;
  Checkpoint results;
  nlohmann::json facts, bfloat16_errors;
  CogVideoXConfig transformer;
  CogVideoXVaeConfig vae;
  T5Config t5;
};

}  // namespace reelmesh::test

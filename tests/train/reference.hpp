#pragma once
// The results of PyTorch in tests/data/cogvideox/training (see tests/data/cogvideox/README.md).
#include "models/reference.hpp"
#include "train/parameters.hpp"
#include "weights/lora.hpp"

namespace reelmesh::test {

/// A case of a part: "gradients", "ten_steps".
struct TrainingReference {
  TrainingReference(const std::string& part, const std::string& name)
      : prefix(part + "." + name + "."),
        folder(data_folder() / "cogvideox" / "training"),
        results(SafetensorsFile::open(folder / "reference.safetensors")),
        facts(parse_json(read_text(folder / "reference.json", 1 << 20), "reference.json")
                  .at(part)
                  .at(name)),
        reference(facts.at("kind").get<std::string>()),
        lora(Lora::open(folder / facts.at("lora").get<std::string>())) {}

  Tensor get(const std::string& tensor) const {
    return results.load(prefix + tensor, DType::float32);
  }

  std::string prefix;
  std::filesystem::path folder;
  SafetensorsFile results;
  nlohmann::json facts;
  Reference reference;
  Lora lora;
};

}  // namespace reelmesh::test

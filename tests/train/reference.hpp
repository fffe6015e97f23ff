#pragma once
// The results of PyTorch in tests/data/cogvideox/training (see tests/data/cogvideox/README.md).
#include <gtest/gtest.h>

#include "models/reference.hpp"
#include "train/parameters.hpp"
#include "weights/lora.hpp"

namespace reelmesh::test {

/// A case of a part: "gradients", "ten_steps"; "all_gradients", "all_steps" of all parameters.
struct TrainingReference {
  TrainingReference(const std::string& part, const std::string& name)
      : prefix(part + "." + name + "."),
        folder(data_folder() / "cogvideox" / "training"),
        results(SafetensorsFile::open(folder / "reference.safetensors")),
        facts(parse_json(read_text(folder / "reference.json", 1 << 20), "reference.json")
                  .at(part)
                  .at(name)),
        reference(facts.at("kind").get<std::string>()) {
    if (facts.contains("lora")) lora = Lora::open(folder / facts.at("lora").get<std::string>());
  }

  bool all_weights() const { return !lora; }
  Tensor get(const std::string& tensor) const {
    return results.load(prefix + tensor, DType::float32);
  }

  std::string prefix;
  std::filesystem::path folder;
  SafetensorsFile results;
  nlohmann::json facts;
  Reference reference;
  std::optional<Lora> lora;  ///< unless all parameters are trained
};

/// Between a tensor and the elements of it, at most `count`, that are kept at equal distances.
inline double largest_difference_of_kept(const Tensor& whole, const Tensor& kept,
                                         std::int64_t count = 256) {
  const std::int64_t distance = (whole.numel() + count - 1) / count;
  EXPECT_EQ(kept.numel(), (whole.numel() + distance - 1) / distance);
  double largest = 0;
  for (std::int64_t i = 0; i < kept.numel(); ++i) {
    const double difference =
        double{whole.data<float>()[i * distance]} - double{kept.data<float>()[i]};
    largest = std::max(largest, std::abs(difference));
  }
  return largest;
}

}  // namespace reelmesh::test

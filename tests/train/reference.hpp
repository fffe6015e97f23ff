#pragma once
// What PyTorch's trainings gave: tests/data/cogvideox/training and tests/data/opensora/training
// (see their README.md).
#include <gtest/gtest.h>

#include "models/reference.hpp"
#include "train/parameters.hpp"
#include "weights/lora.hpp"

namespace reelmesh::test {

/// A case of a part of results that are stored in a folder: reference.safetensors, whose tensors
/// are named PART.CASE.…, and reference.json.
struct StoredRun {
  StoredRun(const std::filesystem::path& folder_of, const std::string& part,
            const std::string& name)
      : prefix(part + "." + name + "."),
        folder(folder_of),
        results(SafetensorsFile::open(folder / "reference.safetensors")),
        facts(parse_json(read_text(folder / "reference.json", 1 << 20), "reference.json")
                  .at(part)
                  .at(name)) {}

  std::string kind() const { return facts.at("kind").get<std::string>(); }
  Tensor get(const std::string& tensor) const {
    return results.load(prefix + tensor, DType::float32);
  }

  std::string prefix;
  std::filesystem::path folder;
  SafetensorsFile results;
  nlohmann::json facts;
};

/// Parts "gradients", "ten_steps"; "all_gradients", "all_steps" of all parameters.
struct TrainingReference : StoredRun {
  TrainingReference(const std::string& part, const std::string& name)
      : StoredRun(data_folder() / "cogvideox" / "training", part, name), reference(kind()) {
    if (facts.contains("lora")) lora = Lora::open(folder / facts.at("lora").get<std::string>());
  }

  bool all_weights() const { return !lora; }

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

#pragma once
// What PyTorch's trainings gave: tests/data/cogvideox/training and those of opensora and wan
// (see their README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "models/reference.hpp"
#include "train/computed_gradient.hpp"
#include "train/parameters.hpp"
#include "weights/lora.hpp"
#include "weights/lora_patterns.hpp"

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

/// The ends of the modules that a LoRA changes.
inline std::vector<std::string> targets_of(const Lora& lora) {
  std::vector<std::string> found;
  for (const char* end : {"to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "ff.net.2",
                          "ffn.net.0.proj", "ffn.net.2", "add_k_proj", "add_v_proj"}) {
    const auto is_named = [&](const auto& module) { return names_module(end, module.first); };
    if (std::ranges::any_of(lora.modules(), is_named)) found.emplace_back(end);
  }
  return found;
}

/// Parts "gradients", "ten_steps"; "all_gradients", "all_steps" of all parameters.
struct TrainingReference : StoredRun {
  TrainingReference(const std::string& part, const std::string& name)
      : StoredRun(data_folder() / "cogvideox" / "training", part, name), reference(kind()) {
    if (facts.contains("lora")) lora = Lora::open(folder / facts.at("lora").get<std::string>());
  }

  bool all_weights() const { return !lora; }
  std::vector<std::string> targets() const { return targets_of(*lora); }

  Reference reference;
  std::optional<Lora> lora;  ///< unless all parameters are trained
};

/// A, or B transposed, of a layer.
inline Tensor stored_value(const Lora& lora, const std::string& module, bool down) {
  const LoraModule& found = lora.modules().at(module);
  const Tensor stored = lora.file().load(down ? found.down : found.up, DType::float32);
  return down ? stored : train::transposed(stored);
}

// Of most modules of the LoRAs.
constexpr std::int64_t lora_rank = 4;
constexpr double lora_alpha = 6;
/// Rank and alpha of the modules of a LoRA that have others.
inline std::pair<LoraPatterns<std::int64_t>, LoraPatterns<double>> patterns_of(const Lora& lora) {
  std::pair<LoraPatterns<std::int64_t>, LoraPatterns<double>> patterns;
  for (const auto& [name, module] : lora.modules()) {
    const double alpha = module.factor * static_cast<double>(module.rank);
    if (module.rank != lora_rank) patterns.first.push_back({name, module.rank});
    if (alpha != lora_alpha) patterns.second.push_back({name, alpha});
  }
  return patterns;
}

/// Gradients of a LoRA are those of a run.
inline void expect_lora_gradients(const CaseGradient& found, const StoredRun& run, const Lora& lora,
                                  double tolerance) {
  ASSERT_EQ(found.modules.size(), lora.modules().size());
  for (std::size_t t = 0; t < found.modules.size(); ++t) {
    const std::string name = "gradient." + found.modules[t];
    const Tensor down = run.get(name + ".lora_A.weight"), up = run.get(name + ".lora_B.weight");
    EXPECT_LT(relative_error(found.gradients[2 * t], down), tolerance) << found.modules[t];
    EXPECT_LT(relative_error(found.gradients[2 * t + 1], train::transposed(up)), tolerance)
        << found.modules[t];
  }
}

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

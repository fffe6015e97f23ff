// A LoRA: its names, settings and shapes, and what it does to the weights of a small model.
#include "fuzz/fuzz.hpp"
#include "weights/lora_changes.hpp"

using namespace reelmesh;

namespace {

// Two modules are alike with '_' for '.'.
const TensorInfos model{{"blocks.0.attn1.to_q.weight", {"F32", {3, 2}}},
                        {"blocks.0.attn1.to_q.bias", {"F32", {3}}},
                        {"blocks.0.attn1_to_q.weight", {"F32", {3, 2}}},
                        {"blocks.1.attn1.to_q.weight", {"F32", {3, 2}}},
                        {"proj.weight", {"F32", {3, 2, 1, 2}}},
                        {"norm.weight", {"F32", {3}}},
                        {"patch_embedding.weight", {"F32", {3, 2}}},
                        {"blocks.0.scale_shift_table", {"F32", {1, 2, 2}}}};

void change(const LoraChanges& changes) {
  for (const auto& [name, info] : model) {
    const LoraChanges::Terms* terms = changes.find(name);
    if (terms == nullptr) continue;
    std::vector<float> values(static_cast<std::size_t>(numel(info.shape)));
    const std::int64_t row = numel(info.shape) / info.shape[0];
    changes.add(*terms, 0, info.shape[0], row, values.data(), row);
  }
}

}  // namespace

FUZZ_TARGET(lora) {
  static const std::filesystem::path path = fuzz::make_folder() / "lora.safetensors";
  fuzz::write_file(path, fuzz::as_text(data, size));
  std::vector<std::string> names;
  for (const auto& [name, info] : model) names.push_back(name);
  const auto find = [](const std::string& name) {
    const auto found = model.find(name);
    return found == model.end() ? nullptr : &*found;
  };
  fuzz::refusals_allowed([&] { change(LoraChanges({{path, 0.5}}, find, names)); });
  fuzz::refusals_allowed([&] { (void)Lora::open(path).left_out(); });
  return 0;
}

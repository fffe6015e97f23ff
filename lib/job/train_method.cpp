#include "job/train_method.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "job/train_settings.hpp"
#include "models/common/trainable.hpp"

namespace reelmesh {
namespace {

std::optional<LoraShape> shape_of_lora(const TrainSettings& settings) {
  const LoraSettings& lora = settings.lora;
  return LoraShape{.targets = lora.targets,
                   .rank = lora.rank,
                   .alpha = lora.alpha.value_or(static_cast<double>(lora.rank)),
                   .ranks = lora.rank_pattern,
                   .alphas = lora.alpha_pattern,
                   .dropout = {.probability = lora.dropout, .seed = settings.seed}};
}

std::string description_of_lora(const TrainSettings& settings) {
  const LoraSettings& lora = settings.lora;
  std::string text = fmt::format("LoRA of rank {}", lora.rank);
  if (!lora.rank_pattern.empty()) text += fmt::format(" ({})", pattern_text(lora.rank_pattern));
  return text;
}

}  // namespace

std::span<const TrainMethod> train_methods() {
  static constexpr TrainMethod all[] = {
      {"lora", "a LoRA of the transformer", TrainedFiles::lora, shape_of_lora, description_of_lora},
      {"full", "all its weights", TrainedFiles::transformer,
       [](const TrainSettings&) { return std::optional<LoraShape>(); },
       [](const TrainSettings&) -> std::string { return "all weights of the transformer"; }}};
  return all;
}

const TrainMethod& train_method_named(std::string_view name) {
  const auto all = train_methods();
  const auto found = std::ranges::find(all, name, &TrainMethod::name);
  expect(found != all.end(), "there is no method of training {}", name);
  return *found;
}

}  // namespace reelmesh

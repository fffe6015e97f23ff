#pragma once
// Gradients of all parameters, and of a LoRA, of Wan's transformer by diffusers
// (tests/data/wan/training, and of one that takes an image tests/data/wan/image/training), and by a
// group of ranks.
#include "models/wan/reference.hpp"
#include "models/wan/transformer.hpp"
#include "train/computed_gradient.hpp"
#include "train/reference.hpp"

namespace reelmesh::test {

/// The folder of a run, and its name there: "lora", or "image.lora" of a model that takes an image.
inline std::pair<std::filesystem::path, std::string> wan_run(const std::string& name) {
  const std::string image = "image.";
  const std::filesystem::path wan = data_folder() / "wan";
  if (!name.starts_with(image)) return {wan / "training", name};
  return {wan / "image" / "training", name.substr(image.size())};
}

/// "all", "lora.odd", "image.all", …
struct WanGradientCase : StoredRun {
  explicit WanGradientCase(const std::string& name)
      : StoredRun(wan_run(name).first, "gradients", wan_run(name).second), reference(kind()) {
    if (facts.contains("lora")) lora = Lora::open(folder / facts.at("lora").get<std::string>());
  }

  WanReference reference;
  std::optional<Lora> lora;  ///< unless all parameters are trained
};

/// Collective over run.group.
inline CaseGradient gradient_of(const WanGradientCase& c, const GradientRun& run) {
  const comm::Group& group = run.group;
  const WanConfig& config = c.reference.transformer;
  std::optional<LoraShape> shape;
  if (c.lora) {
    shape = {.targets = targets_of(*c.lora), .rank = lora_rank, .alpha = lora_alpha};
    std::tie(shape->ranks, shape->alphas) = patterns_of(*c.lora);
  }
  const auto made = in_training<WanTransformer>(
      c.reference.weights("transformer").on(run.device), config, run.dtype,
      {.residence = run.residence, .group = group}, {shape, run.recomputes_blocks});
  Trainable& model = *made;
  model.set_together([&](std::size_t first, std::size_t count) {
    std::vector<Tensor> values;
    for (std::size_t i = first; i < first + count; ++i) {
      values.push_back(c.lora ? stored_value(*c.lora, model.targets()[i / 2].module, i % 2 == 0)
                              : model.initial(i));
    }
    return values;
  });

  const Tensor latents = c.get("latents"), text = c.get("text");
  const Shape& extents = latents.shape();
  DenoiseTask task{.group = group, .latents = {extents[0], extents[2], extents[3]}};
  task.layout.mesh = {1, run.ring, group.size() / run.ring};
  task.layout.tokens = Layout::grid(
      {extents[0], extents[2] / config.patch.rows, extents[3] / config.patch.columns}, run.parts);
  task.layout.text = Layout::replicated({text.shape(0)}, group.size());
  task.layout.latents = latents_of_tokens(
      task.layout.tokens, {1, config.patch.rows, config.patch.columns}, task.latents);
  const Layout boxes = task.layout.latents.with_axis(1, extents[1]);
  TrainingSample sample{.timestep = c.facts.at("timestep").get<double>(),
                        .latents = own_part(latents, boxes, group),
                        .target = own_part(c.get("target"), boxes, group),
                        .text = text.reshape({text.shape(0), 1, text.shape(1)}).to(run.dtype)};
  if (config.takes_image()) {
    sample.image = own_part(c.get("image_latents"), boxes, group);
    sample.vision = c.get("image_rows").to(run.dtype);
    task.image_rows = sample.vision.shape(0);
  }
  const auto prepared = model.prepare(task);
  return computed_gradient(model, *prepared, sample, group, latents.numel(),
                           run.residence != Residence::sharded);
}

/// Loss and gradients are those of diffusers: within 1e-5 of the largest element of each tensor.
inline void expect_reference(const CaseGradient& found, const WanGradientCase& c) {
  constexpr double tolerance = 1e-5;
  EXPECT_NEAR(found.loss / c.facts.at("loss").get<double>(), 1, 1e-6);
  if (c.lora) return expect_lora_gradients(found, c, *c.lora, tolerance);
  ASSERT_EQ(found.names.size(), c.facts.at("largest").size());
  for (std::size_t i = 0; i < found.names.size(); ++i) {
    const std::string& parameter = found.names[i];
    const double largest = c.facts.at("largest").at(parameter).get<double>();
    EXPECT_LT(largest_difference_of_kept(found.gradients[i], c.get("gradient." + parameter), 128),
              tolerance * largest)
        << parameter;
  }
}

}  // namespace reelmesh::test

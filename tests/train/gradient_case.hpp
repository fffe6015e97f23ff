#pragma once
// Gradients of LoRAs and of all parameters of CogVideoX by PyTorch (tests/data/cogvideox/training),
// and by a group of ranks.
#include <gtest/gtest.h>

#include "models/cogvideox/transformer.hpp"
#include "train/computed_gradient.hpp"
#include "train/reference.hpp"

namespace reelmesh::test {

/// What PyTorch's run gave of a case: "sincos", "rotary_ff", …
struct GradientCase : TrainingReference {
  explicit GradientCase(const std::string& name, const std::string& part = "gradients")
      : TrainingReference(part, name) {}
};

/// A case by its name, with "all." in front if all parameters are trained.
inline GradientCase case_of(const std::string& name) {
  return name.starts_with("all.") ? GradientCase(name.substr(4), "all_gradients")
                                  : GradientCase(name);
}

/// Collective over run.group.
inline CaseGradient gradient_of(const GradientCase& c, const GradientRun& run) {
  const comm::Group& group = run.group;
  const CogVideoXConfig& config = c.reference.transformer;
  const Checkpoint weights =
      Checkpoint::open(c.reference.folder / "transformer", "diffusion_pytorch_model")
          .on(run.device);
  std::optional<LoraShape> shape;
  if (c.lora) {
    shape = {.targets = c.targets(), .rank = lora_rank, .alpha = lora_alpha};
    std::tie(shape->ranks, shape->alphas) = patterns_of(*c.lora);
  }
  const auto made = in_training<CogVideoXTransformer>(weights, config, run.dtype,
                                                      {.residence = run.residence, .group = group},
                                                      {shape, run.recomputes_blocks});
  Trainable& model = *made;
  EXPECT_EQ(model.targets().size(), c.lora ? c.lora->modules().size() : 0U);
  set_values(model, [&](std::size_t i) {
    return c.lora ? stored_value(*c.lora, model.targets()[i / 2].module, i % 2 == 0)
                  : model.initial(i);
  });

  const Tensor latents = c.get("latents"), target = c.get("target");
  const Shape& extents = latents.shape();
  const Shape grid{extents[0] / config.patch.frames, extents[2] / config.patch.rows,
                   extents[3] / config.patch.columns};
  DenoiseTask task{.group = group};
  task.layout.mesh = {1, run.ring, group.size() / run.ring};
  task.layout.tokens = Layout::grid(grid, run.parts);
  task.layout.text = Layout::cut({config.max_text_tokens}, 0, group.size());
  task.latents = {extents[0], extents[2], extents[3]};
  task.layout.latents = latents_of_tokens(
      task.layout.tokens, {config.patch.frames, config.patch.rows, config.patch.columns},
      task.latents);
  const auto prepared = model.prepare(task);
  const Tensor text = c.reference.get("text.embeddings")
                          .rows(c.facts.at("text").get<std::int64_t>(), 1)
                          .reshape({config.max_text_tokens, 1, config.text_channels});
  const Layout boxes = task.layout.latents.with_axis(1, extents[1]);
  TrainingSample sample{
      .timestep = c.facts.at("timestep").get<double>(),
      .latents = own_part(latents, boxes, group),
      .target = own_part(target, boxes, group),
      .text =
          own_part(text, task.layout.text.with_axis(1, 1).with_axis(2, config.text_channels), group)
              .to(run.dtype)};
  if (config.takes_image()) sample.image = own_part(c.get("image"), boxes, group);
  // Of sharded weights steps_test.cpp compares it, as it is slow.
  return computed_gradient(model, *prepared, sample, group, latents.numel(),
                           run.residence != Residence::sharded);
}

/// Loss and gradients are PyTorch's, in float32.
inline void expect_reference(const CaseGradient& found, const GradientCase& c, double tolerance) {
  EXPECT_NEAR(found.loss / c.facts.at("loss").get<double>(), 1, 1e-6);
  if (!c.lora) {
    ASSERT_EQ(found.names.size(), c.facts.at("largest").size());
    double largest_of_all = 0;
    for (const auto& value : c.facts.at("largest")) {
      largest_of_all = std::max(largest_of_all, value.get<double>());
    }
    for (std::size_t i = 0; i < found.names.size(); ++i) {
      const Tensor expected = c.get("gradient." + found.names[i]);
      double largest = c.facts.at("largest").at(found.names[i]).get<double>();
      // What is added to all keys of a head does not change attention: without a rotation this
      // gradient is zero, and both have rounding errors of it.
      if (found.names[i].ends_with("norm_k.bias") && largest < 1e-6 * largest_of_all) {
        largest = 1e-2 * largest_of_all;
      }
      EXPECT_LT(largest_difference_of_kept(found.gradients[i], expected), tolerance * largest)
          << found.names[i];
    }
    return;
  }
  expect_lora_gradients(found, c, *c.lora, tolerance);
}

}  // namespace reelmesh::test

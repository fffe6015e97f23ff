#pragma once
// Gradients of all parameters of Open-Sora's transformers by Open-Sora's own code
// (tests/data/opensora/training), and by a group of ranks.
#include "models/opensora/reference.hpp"
#include "models/opensora/transformer.hpp"
#include "train/computed_gradient.hpp"
#include "train/reference.hpp"

namespace reelmesh::test {

/// "v1_0", "v1_2.odd", …; part: "training", or "lora" for those of a LoRA.
struct OpenSoraGradientCase : StoredRun {
  explicit OpenSoraGradientCase(const std::string& name, const char* part = "training")
      : StoredRun(data_folder() / "opensora" / part, "gradients", name), reference(kind()) {}

  OpenSoraReference reference;
};

struct OpenSoraRun {
  comm::Group group;
  Device device;
  DType dtype = DType::float32;
  int frame_parts = 1;  ///< of the latents; the ranks of each part divide rows and heads
  Residence residence = Residence::replicated;
  std::optional<LoraShape> lora = {};
  bool recomputes_blocks = true;
  /// The values of a matrix; none: those of the checkpoint.
  std::function<Tensor(const Trainable& model, std::size_t matrix)> value = {};
};

/// Collective over run.group.
inline CaseGradient gradient_of(const OpenSoraGradientCase& c, const OpenSoraRun& run) {
  const comm::Group& group = run.group;
  const STDiTConfig& config = c.reference.transformer;
  const Checkpoint weights =
      Checkpoint::open(c.reference.folder / "transformer", "diffusion_pytorch_model")
          .on(run.device);
  std::optional<IddpmLoss> loss;
  if (config.kind == STDiTConfig::Kind::v1) loss.emplace(IddpmConfig{});
  const auto made =
      in_training<STDiT>(weights, config, run.dtype, {.residence = run.residence, .group = group},
                         {run.lora, run.recomputes_blocks}, loss);
  Trainable& model = *made;
  set_values(model,
             [&](std::size_t i) { return run.value ? run.value(model, i) : model.initial(i); });

  const Tensor latents = frame_first(c.get("latents"));
  const Shape& extents = latents.shape();
  STDiTClip clip{{extents[0], extents[2], extents[3]}};
  DenoiseTask task{.group = group, .latents = clip.latents};
  if (!loss) {
    task.size = {c.facts.at("height").get<std::int64_t>(), c.facts.at("width").get<std::int64_t>(),
                 c.facts.at("frames").get<std::int64_t>()};
    task.fps = c.facts.at("fps").get<double>();
  }
  const Shape tokens = clip.tokens(config.patch);
  task.layout.mesh = {1, 1, group.size()};
  task.layout.parts = {run.frame_parts, group.size() / run.frame_parts, 1};
  task.layout.tokens = Layout::grid(tokens, task.layout.parts);
  task.layout.latents = latents_of_tokens(
      task.layout.tokens, {1, config.patch.rows, config.patch.columns}, task.latents);
  const auto prepared = model.prepare(task);
  const Layout boxes = task.layout.latents.with_axis(1, extents[1]);
  const Tensor text = c.reference.text(c.facts.at("text").get<std::int64_t>());
  const auto own = [&](const char* name) {
    return own_part(frame_first(c.get(name)), boxes, group);
  };
  const TrainingSample sample{.timestep = c.facts.at("timestep").get<double>(),
                              .latents = own("latents"),
                              .target = own("target"),
                              .text = text.reshape({text.shape(0), 1, text.shape(1)}).to(run.dtype),
                              .clean = own("clean"),
                              .drops_caption = c.facts.at("dropped").get<bool>()};
  const bool drops = run.lora && run.lora->dropout.probability > 0;
  return computed_gradient(model, *prepared, sample, group, latents.numel(),
                           !drops && run.residence != Residence::sharded);
}

/// Loss and gradients are those of Open-Sora's code: within 1e-5 of the largest element of each
/// tensor, or within twice the errors that the same code has in float32 where these are larger
/// (1.0's attention has no norm of queries and keys, and amplifies them).
inline void expect_reference(const CaseGradient& found, const OpenSoraGradientCase& c) {
  EXPECT_NEAR(found.loss / c.facts.at("loss").get<double>(), 1, 1e-6);
  ASSERT_EQ(found.names.size(), c.facts.at("largest").size());
  for (std::size_t i = 0; i < found.names.size(); ++i) {
    std::string parameter = found.names[i];
    Tensor gradient = found.gradients[i];
    if (!found.modules.empty()) {  // MODULE.lora_A, and .lora_B, which is transposed
      parameter += ".weight";
      if (i % 2 == 1) gradient = train::transposed(gradient);
    }
    const double limit = std::max(1e-5 * c.facts.at("largest").at(parameter).get<double>(),
                                  2 * c.facts.at("float32_errors").at(parameter).get<double>());
    EXPECT_LT(largest_difference_of_kept(gradient, c.get("gradient." + parameter), 128), limit)
        << parameter;
  }
}

}  // namespace reelmesh::test

#pragma once
// Gradients of LoRAs of CogVideoX by PyTorch (tests/data/cogvideox/training), and by a group of
// ranks.
#include <gtest/gtest.h>

#include "layout/relayout.hpp"
#include "models/cogvideox/transformer_backward.hpp"
#include "train/reference.hpp"

namespace reelmesh::test {

/// What PyTorch's run gave of a case: "sincos", "rotary_ff", …
struct GradientCase : TrainingReference {
  explicit GradientCase(const std::string& name) : TrainingReference("gradients", name) {}

  LoraValues values(const std::string& module) const {
    const LoraModule& found = lora.modules().at(module);
    return {lora.file().load(found.down, DType::float32),
            train::transposed(lora.file().load(found.up, DType::float32))};
  }
  /// Whether layers of the feed-forward network have LoRAs, too.
  bool has_feed_forward() const { return lora.modules().contains("transformer_blocks.0.ff.net.2"); }
};

/// Who computes the gradients of a case, and how.
struct GradientRun {
  comm::Group group;
  Device device;
  DType dtype = DType::float32;
  std::vector<int> parts;  ///< into which frames, rows and columns of tokens are cut
  int ring = 1;
  Residence residence = Residence::replicated;
};

struct CaseGradient {
  double loss = 0;
  std::vector<std::string> modules;   ///< of the targets
  std::vector<LoraValues> gradients;  ///< of each of them: all columns, on every rank
};

/// Collective over run.group.
inline CaseGradient gradient_of(const GradientCase& c, const GradientRun& run) {
  const comm::Group& group = run.group;
  const CogVideoXConfig& config = c.reference.transformer;
  const Checkpoint weights =
      Checkpoint::open(c.reference.folder / "transformer", "diffusion_pytorch_model")
          .on(run.device);
  LoraShape shape{.targets = {"to_q", "to_k", "to_v", "to_out.0"},
                  .rank = 4,
                  .factor = c.lora.modules().begin()->second.factor};
  if (c.has_feed_forward()) {
    shape.targets.insert(shape.targets.end(), {"ff.net.0.proj", "ff.net.2"});
  }
  CogVideoXTrainable model(weights, config, run.dtype, {.residence = run.residence, .group = group},
                           shape);
  std::vector<LoraValues> values;
  for (const LoraTarget& target : model.targets()) values.push_back(c.values(target.module));
  EXPECT_EQ(values.size(), c.lora.modules().size());
  model.set(values);

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
  const auto own_part = [&](const Tensor& whole, const Layout& layout) {
    const Box box = own_box(layout, group);
    Tensor own = Tensor::empty(box.extent, whole.dtype());
    copy_box(box, whole, whole_box(layout.global()), own, box);
    return own;
  };
  const Layout boxes = task.layout.latents.with_axis(1, extents[1]);
  const TrainingSample sample{
      .timestep = c.facts.at("timestep").get<std::int64_t>(),
      .latents = own_part(latents, boxes),
      .target = own_part(target, boxes),
      .text = own_part(text, task.layout.text.with_axis(1, 1).with_axis(2, config.text_channels))
                  .to(run.dtype)};
  const SampleGradient own = prepared->gradient_together(sample);

  CaseGradient result;
  std::vector<std::int64_t> squares{own.squares.high, own.squares.middle, own.squares.low,
                                    own.squares.lost};
  group.sum(squares);
  const ops::ExactSum sum{squares[0], squares[1], squares[2], squares[3]};
  result.loss = sum.value() / static_cast<double>(latents.numel());
  for (std::size_t t = 0; t < own.gradients.size(); ++t) {
    const auto all_columns = [&](const Tensor& x, std::int64_t columns) {
      std::vector<Box> cut;
      for (int rank = 0; rank < group.size(); ++rank) {
        const auto range = prepared->columns().columns(columns, rank);
        cut.push_back({{0, range.begin}, {shape.rank, range.count}});
      }
      const Layout layout({shape.rank, columns}, cut);
      return relayout({x, layout, group}, Layout::replicated(layout.global(), group.size())).local;
    };
    const LoraTarget& target_of = model.targets()[t];
    result.modules.push_back(target_of.module);
    result.gradients.push_back({all_columns(own.gradients[t].down, target_of.in),
                                all_columns(own.gradients[t].up, target_of.out)});
  }
  return result;
}

/// Loss and gradients are PyTorch's, in float32.
inline void expect_reference(const CaseGradient& found, const GradientCase& c, double tolerance) {
  EXPECT_NEAR(found.loss / c.facts.at("loss").get<double>(), 1, 1e-6);
  ASSERT_EQ(found.modules.size(), c.lora.modules().size());
  for (std::size_t t = 0; t < found.modules.size(); ++t) {
    const std::string name = "gradient." + found.modules[t];
    const Tensor down = c.get(name + ".lora_A.weight"), up = c.get(name + ".lora_B.weight");
    EXPECT_LT(relative_error(found.gradients[t].down, down), tolerance) << found.modules[t];
    EXPECT_LT(relative_error(found.gradients[t].up, train::transposed(up)), tolerance)
        << found.modules[t];
  }
}

inline void expect_same(const CaseGradient& a, const CaseGradient& b, const std::string& what) {
  EXPECT_EQ(a.loss, b.loss) << what;
  ASSERT_EQ(a.modules, b.modules) << what;
  for (std::size_t t = 0; t < a.gradients.size(); ++t) {
    EXPECT_TRUE(same_bits(a.gradients[t].down, b.gradients[t].down))
        << what << ", A of " << a.modules[t];
    EXPECT_TRUE(same_bits(a.gradients[t].up, b.gradients[t].up))
        << what << ", B of " << a.modules[t];
  }
}

}  // namespace reelmesh::test

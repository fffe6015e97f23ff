// Gradients of LoRAs: equal to PyTorch's, and the same bits on every layout.
#include "layout/relayout.hpp"
#include "models/cogvideox/transformer_backward.hpp"
#include "support/ranks.hpp"
#include "train/reference.hpp"

namespace reelmesh {
namespace {

Tensor spread(const Tensor& whole, const Layout& layout) {
  const auto& world = test::world();
  return relayout({whole, Layout::replicated(whole.shape(), world.size()), world}, layout).local;
}

using Case = test::TrainingReference;
using train::transposed;

LoraValues values_of(const Case& c, const std::string& module) {
  const LoraModule& found = c.lora.modules().at(module);
  return {c.lora.file().load(found.down, DType::float32),
          transposed(c.lora.file().load(found.up, DType::float32))};
}

struct Gradient {
  double loss = 0;
  std::vector<LoraValues> gradients;  // all columns
};

// parts: into which frames, rows and columns are cut.
Gradient gradient_of(const Case& c, DType dtype, const std::vector<int>& parts, int ring,
                     const WeightPlacement& placement) {
  const comm::Group& world = test::world();
  const CogVideoXConfig& config = c.reference.transformer;
  const Checkpoint weights =
      Checkpoint::open(c.reference.folder / "transformer", "diffusion_pytorch_model");
  const bool ff = c.lora.modules().contains("transformer_blocks.0.ff.net.2");
  LoraShape shape{.targets = {"to_q", "to_k", "to_v", "to_out.0"},
                  .rank = 4,
                  .factor = c.lora.modules().begin()->second.factor};
  if (ff) shape.targets.insert(shape.targets.end(), {"ff.net.0.proj", "ff.net.2"});
  CogVideoXTrainable model(weights, config, dtype, placement, shape);
  std::vector<LoraValues> values;
  for (const LoraTarget& target : model.targets()) values.push_back(values_of(c, target.module));
  EXPECT_EQ(values.size(), c.lora.modules().size());
  model.set(values);

  const Tensor latents = c.get("latents"), target = c.get("target");
  const Shape& extents = latents.shape();
  const Shape grid{extents[0] / config.patch.frames, extents[2] / config.patch.rows,
                   extents[3] / config.patch.columns};
  DenoiseTask task{.group = world};
  task.layout.mesh = {1, ring, world.size() / ring};
  task.layout.tokens = Layout::grid(grid, parts);
  task.layout.text = Layout::cut({config.max_text_tokens}, 0, world.size());
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
      .timestep = c.facts.at("timestep").get<std::int64_t>(),
      .latents = spread(latents, boxes),
      .target = spread(target, boxes),
      .text = spread(text, task.layout.text.with_axis(1, 1).with_axis(2, config.text_channels))
                  .to(dtype)};
  const SampleGradient own = prepared->gradient(sample);

  Gradient result;
  std::vector<std::int64_t> squares{own.squares.high, own.squares.middle, own.squares.low,
                                    own.squares.lost};
  world.sum(squares);
  const ops::ExactSum sum{squares[0], squares[1], squares[2], squares[3]};
  result.loss = sum.value() / static_cast<double>(latents.numel());
  for (std::size_t t = 0; t < own.gradients.size(); ++t) {
    const auto all_columns = [&](const Tensor& x, std::int64_t columns) {
      std::vector<Box> cut;
      for (int rank = 0; rank < world.size(); ++rank) {
        const auto range = prepared->columns().columns(columns, rank);
        cut.push_back({{0, range.begin}, {shape.rank, range.count}});
      }
      const Layout layout({shape.rank, columns}, cut);
      return relayout({x, layout, world}, Layout::replicated(layout.global(), world.size())).local;
    };
    result.gradients.push_back({all_columns(own.gradients[t].down, model.targets()[t].in),
                                all_columns(own.gradients[t].up, model.targets()[t].out)});
  }
  return result;
}

void expect_same(const Gradient& a, const Gradient& b, const std::string& what) {
  EXPECT_EQ(a.loss, b.loss) << what;
  for (std::size_t t = 0; t < a.gradients.size(); ++t) {
    EXPECT_TRUE(test::same_bits(a.gradients[t].down, b.gradients[t].down)) << what << " A " << t;
    EXPECT_TRUE(test::same_bits(a.gradients[t].up, b.gradients[t].up)) << what << " B " << t;
  }
}

class Gradients : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(CogVideoX, Gradients,
                         ::testing::Values("sincos", "sincos.odd", "rotary", "rotary.odd",
                                           "rotary_ff", "v1_5", "v1_5.odd"));

TEST_P(Gradients, EqualPyTorchOnEveryLayout) {
  const Case c("gradients", GetParam());
  const int ranks = test::world().size();
  const Gradient first = gradient_of(c, DType::float32, {1, ranks, 1}, 1, {});
  EXPECT_NEAR(first.loss / c.facts.at("loss").get<double>(), 1, 1e-6);
  std::size_t t = 0;
  const bool ff = c.lora.modules().contains("transformer_blocks.0.ff.net.2");
  for (std::int64_t block = 0; block < c.reference.transformer.layers; ++block) {
    std::vector<std::string> names{"attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0"};
    if (ff) names.insert(names.end(), {"ff.net.0.proj", "ff.net.2"});
    for (const std::string& name : names) {
      const std::string module = fmt::format("transformer_blocks.{}.{}", block, name);
      const LoraValues& gradient = first.gradients.at(t++);
      EXPECT_LT(test::relative_error(gradient.down, c.get("gradient." + module + ".lora_A.weight")),
                1e-5)
          << module;
      EXPECT_LT(test::relative_error(gradient.up,
                                     transposed(c.get("gradient." + module + ".lora_B.weight"))),
                1e-5)
          << module;
    }
  }
  expect_same(first, gradient_of(c, DType::float32, {ranks, 1, 1}, ranks, {}), "frames, ring");
  expect_same(first, gradient_of(c, DType::float32, {1, 1, ranks}, 1, {}), "columns");
  for (const Residence residence : {Residence::sharded, Residence::host}) {
    expect_same(first,
                gradient_of(c, DType::float32, {1, ranks, 1}, 1,
                            {.residence = residence, .group = test::world()}),
                "weights elsewhere");
  }
}

TEST_P(Gradients, HaveTheSameBitsInBfloat16) {
  const Case c("gradients", GetParam());
  const int ranks = test::world().size();
  const Gradient first = gradient_of(c, DType::bfloat16, {1, ranks, 1}, 1, {});
  EXPECT_NEAR(first.loss / c.facts.at("loss").get<double>(), 1, 2e-2);
  expect_same(first, gradient_of(c, DType::bfloat16, {ranks, 1, 1}, ranks, {}), "frames, ring");
}

}  // namespace
}  // namespace reelmesh

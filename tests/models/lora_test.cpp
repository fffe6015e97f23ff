// One call of the transformer with LoRAs, against diffusers and PEFT (tests/data/lora).
#include "layout/relayout.hpp"
#include "models/cogvideox/transformer.hpp"
#include "models/reference.hpp"
#include "support/lora_cases.hpp"
#include "support/ranks.hpp"
#include "support/spread.hpp"

namespace reelmesh {
namespace {

using test::Reference;
using test::spread;

class Loras : public testing::TestWithParam<test::LoraCase> {};

// The first stored call, with the prompt of row 1.
Tensor prediction(const Reference& reference, const Checkpoint& weights,
                  const WeightPlacement& placement) {
  const auto& c = reference.transformer;
  const auto world = test::world();
  const CogVideoXTransformer model(weights, c, DType::float32, placement);
  const Tensor latents = reference.get("transformer.latents").rows(0, 1);
  const Shape shape(latents.shape().begin() + 1, latents.shape().end());
  const Layout grid =
      Layout::cut({shape[0], shape[2] / c.patch.rows, shape[3] / c.patch.columns}, 1, world.size());
  const Tensor embedding = reference.get("text.embeddings").rows(1, 1);
  const Layout text = Layout::cut({embedding.shape(1)}, 0, world.size());
  const CogVideoXPlacement clip_placement(model, world, grid, text, 1, 1);
  const Sharded context = spread(embedding.reshape({embedding.shape(1), 1, c.text_channels}),
                                 text.with_axis(1, 1).with_axis(2, c.text_channels));
  const Sharded box =
      spread(latents.reshape(shape),
             latents_of_tokens(grid, {c.patch.frames, c.patch.rows, c.patch.columns},
                               {shape[0], shape[2], shape[3]})
                 .with_axis(1, shape[1]));
  const Tensor timesteps = reference.get("transformer.timestep");
  const auto results = model(clip_placement, {&box.local, 1}, context.local,
                             model.embed(timesteps.data<float>()[0]));
  return relayout({results.at(0), box.layout, world},
                  Layout::replicated(box.layout.global(), world.size()))
      .local;
}

TEST_P(Loras, GiveTheReferencesOutputWhereverWeightsAre) {
  const Reference reference("sincos");
  const auto plain = Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model");
  const Checkpoint weights = plain.with(GetParam().loras());
  const auto stored = SafetensorsFile::open(test::data_folder() / "lora" / "reference.safetensors");
  const Tensor expected = stored.load(std::string(GetParam().name) + ".output", DType::float32);
  const Tensor found = prediction(reference, weights, {});
  EXPECT_LT(test::relative_error(found, expected), 1e-4);
  EXPECT_GT(test::relative_error(prediction(reference, plain, {}), expected), 1e-2)
      << "the LoRA has no effect";
  for (const Residence residence : {Residence::sharded, Residence::host}) {
    EXPECT_TRUE(test::same_bits(
        prediction(reference, weights, {.residence = residence, .group = test::world()}), found));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Loras, testing::ValuesIn(test::lora_cases()), test::name_of_case);

}  // namespace
}  // namespace reelmesh

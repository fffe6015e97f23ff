// CogVideoX's transformer for image to video on devices: calls that are captured as CUDA graphs,
// for two clips with different images, compared with the reference and with one rank.
#include "models/cogvideox/transformer.hpp"

#include "layout/relayout.hpp"
#include "layout/repeated_call.hpp"
#include "models/reference.hpp"
#include "support/gpu_ranks.hpp"
#include "support/long.hpp"
#include "support/random_tensor.hpp"

namespace reelmesh::test {
namespace {

class ImageToVideoOnGpu : public RanksTest {
 protected:
  void SetUp() override {
    RanksTest::SetUp();
    if (IsSkipped()) return;
    for (int rank = 0; rank < test::world().size(); ++rank) {
      if (const comm::Group alone = test::world().range(rank, 1); alone.member()) self = alone;
    }
  }
  comm::Group self;
};
INSTANTIATE_TEST_SUITE_P(Transports, ImageToVideoOnGpu, testing::ValuesIn(transports_of_models()),
                         transport_name);

// Embeddings of both branches of the reference's first clip: [token, branch, channel].
Tensor text_context(const Reference& reference) {
  const Tensor embeddings = reference.get("text.embeddings");  // [text, token, channel]
  const std::int64_t tokens = embeddings.shape(1), channels = embeddings.shape(2);
  Tensor context = Tensor::empty({tokens, 2, channels}, DType::float32);
  std::int64_t branch = 0;
  for (const char* index : {"negative_index", "prompt_index"}) {
    const auto text = reference.facts["clips"][0][index].get<std::int64_t>();
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::copy_n(embeddings.data<float>() + (text * tokens + t) * channels, channels,
                  context.data<float>() + (t * 2 + branch) * channels);
    }
    ++branch;
  }
  return context;
}

// A rank's part of the predictions of three calls for two clips, [call][clip][branch] in one list.
// The clips differ in their images only. The third call repeats the first one.
struct Predictions {
  std::vector<Tensor> all;
  Box box;
};
Predictions predict(const Reference& reference, const CogVideoXTransformer& transformer,
                    const comm::Group& group) {
  const CogVideoXConfig& c = transformer.config();
  const Device device = transformer.device();
  const Tensor latents = reference.get("transformer.latents");  // [call, frame, channel, …]
  const Tensor timesteps = reference.get("transformer.timestep");
  const Shape shape(latents.shape().begin() + 1, latents.shape().end());
  const Shape patch{c.patch.frames, c.patch.rows, c.patch.columns};
  const Shape grid{shape[0] / patch[0], shape[2] / patch[1], shape[3] / patch[2]};

  DenoiseTask task{
      .group = group, .layout = {}, .latents = {shape[0], shape[2], shape[3]}, .branches = 2};
  task.layout.tokens = Layout::cut(grid, 1, group.size());
  task.layout.text = Layout::cut({c.max_text_tokens}, 0, group.size());
  task.layout.latents = latents_of_tokens(task.layout.tokens, patch, task.latents);
  const Layout boxes = task.layout.latents.with_axis(1, shape[1]);
  const Box box = own_box(boxes, group), text = own_box(task.layout.text, group);
  const auto part = [&](const Tensor& whole) {
    Tensor own = Tensor::empty(box.extent, DType::float32);
    copy_box(box, whole, whole_box(shape), own, box);
    return own;
  };
  const Tensor context = text_context(reference).rows(text.offset[0], text.extent[0]);
  const std::vector<Conditioning> clips{{context, part(reference.get("transformer.image"))},
                                        {context, part(random_tensor(shape, 5))}};
  const auto prepared = transformer.prepare(task, clips);

  // Graphs read latents and timesteps at the same addresses in every call.
  Tensor x = Tensor::empty(box.extent, DType::float32, device);
  Tensor time = transformer.embed(0).clone();
  int calls = 0;
  RepeatedCall call(device, group, group.capturable(), [&] {
    ++calls;
    return prepared->predict_together(std::vector{x, x}, time, Blocks::compute);
  });
  Predictions predictions{{}, box};
  for (const std::int64_t step : {0, 1, 0}) {
    x.copy_from(part(latents.rows(step, 1).reshape(shape)));
    time.copy_from(transformer.embed(double(timesteps.data<float>()[step])));
    for (const Tensor& one : call()) predictions.all.push_back(one.on({}).clone());
  }
  EXPECT_EQ(calls, group.capturable() ? 2 : 3) << "the third is a replay";
  return predictions;
}

TEST_P(ImageToVideoOnGpu, GivesTheReferenceOnEveryRankAndInEveryCall) {
  for (const char* kind : {"i2v", "i2v_1_5"}) {
    const Reference reference(kind);
    const CogVideoXTransformer transformer(
        Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model").on(device),
        reference.transformer, DType::float32);
    const std::vector<Tensor> alone = predict(reference, transformer, self).all;
    const Tensor expected = reference.get("transformer.output");  // [call, branch, frame, …]
    const Shape shape = alone.front().shape();
    for (std::size_t step : {0, 1}) {
      for (std::size_t branch : {0, 1}) {
        const Tensor output = expected.rows(std::int64_t(step), 1)
                                  .reshape({2, numel(shape)})
                                  .rows(std::int64_t(branch), 1)
                                  .reshape(shape);
        EXPECT_LT(relative_error(alone[4 * step + branch], output), 1e-4) << kind;
        EXPECT_GT(relative_error(alone[4 * step + 2 + branch], output), 1e-2) << "another image";
      }
    }
    for (std::size_t i = 8; i < alone.size(); ++i) {
      EXPECT_TRUE(same_bits(alone[i], alone[i - 8])) << kind << ", prediction " << i;
    }
    if (world.size() == 1) continue;
    const auto [parts, box] = predict(reference, transformer, world);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Tensor own = Tensor::empty(box.extent, DType::float32);
      copy_box(box, alone[i], whole_box(shape), own, box);
      EXPECT_TRUE(same_bits(parts[i], own)) << kind << ", prediction " << i;
    }
  }
}

}  // namespace
}  // namespace reelmesh::test

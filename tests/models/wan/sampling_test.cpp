// Whole clips of the tiny model beside those of diffusers' WanPipeline, on one rank: from the ids
// of the prompt to pixels.
#include "layout/clip_layout.hpp"
#include "models/t5/t5.hpp"
#include "models/wan/decoder.hpp"
#include "models/wan/folder.hpp"
#include "models/wan/reference.hpp"
#include "models/wan/transformer.hpp"
#include "sampler/guidance.hpp"
#include "sampler/noise.hpp"
#include "support/ranks.hpp"
#include "text/clean_prompt.hpp"
#include "text/tokenizer.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::relative_error;

class Sampling : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::world().size() > 1) GTEST_SKIP() << "on one rank; layouts/ tests the others";
  }
  Tensor stored(std::size_t clip, const char* name) const {
    const std::string full = fmt::format("clip{}.{}", clip, name);
    return results_.load(full, results_.tensors().at(full).shape, DType::float32);
  }
  // [row, 1, channel] of all rows that the transformer takes, zeros behind the text.
  Tensor encoded(const std::string& prompt) const {
    const auto ids =
        Tokenizer::open(paths_).encode(clean_prompt(prompt).text, WanConfig::text_tokens).ids;
    const auto count = static_cast<std::size_t>(folder_.text_encoder.encoded_tokens(ids));
    const T5Layers layers(paths_.open(ModelPart::text_encoder), folder_.text_encoder,
                          T5Part::whole(folder_.text_encoder), DType::float32);
    return with_zero_rows(layers(layers.embed(std::span(ids).first(count))),
                          WanConfig::text_tokens);
  }

  const ModelPaths paths_ = [] {
    ModelPaths paths{.root = test::data_folder() / "wan" / "float32"};
    paths.complete();
    return paths;
  }();
  const WanFolder folder_ = WanFolder::open(paths_);
  const Checkpoint results_ = Checkpoint::open(paths_.root, "pipeline");
  const nlohmann::json facts_ =
      parse_json(read_text(paths_.root / "pipeline.json", 1 << 20), "pipeline.json");
};

TEST_F(Sampling, MakesTheClipsOfWanPipeline) {
  const WanTransformer transformer(paths_.open(ModelPart::transformer), folder_.transformer,
                                   DType::float32);
  const WanDecoder decoder(paths_.open(ModelPart::vae), folder_.vae, DType::float32);
  const auto& world = test::world();
  for (std::size_t i = 0; i < facts_.at("clips").size(); ++i) {
    const auto& clip = facts_.at("clips")[i];
    const auto guidance = clip.at("guidance").get<double>();
    std::vector<Tensor> texts{encoded(clip.at("prompt"))};
    const Tensor embeddings = stored(i, "embeddings");
    EXPECT_LT(relative_error(texts[0].rows(0, embeddings.shape(0)), embeddings), 1e-5) << i;
    if (guidance > 1) texts.insert(texts.begin(), encoded(clip.at("negative_prompt")));

    const Tensor expected = stored(i, "latents");
    const Shape& shape = expected.shape();
    const Layout grid = Layout::on_one_rank({shape[0], shape[2] / 2, shape[3] / 2}, 1, 0);
    const WanPlacement placement(transformer, world, grid, std::ssize(texts));
    const WanContext context = transformer.encode_context(ops::join_batches(texts));
    TorchGenerator generator(clip.at("seed").get<std::uint64_t>());
    Tensor x = Tensor::empty(shape, DType::float32);
    draw_initial_noise({.channels_first = true}, generator, shape, {0, 0, 0, 0}, shape,
                       x.span<float>());
    const auto sampler =
        folder_.scheduler.sampler->make(folder_.scheduler.settings, clip.at("steps").get<int>());
    std::vector<Tensor> history;
    for (int step = 0; step < sampler->calls(); ++step) {
      auto predictions =
          transformer(placement, {&x, 1}, context, transformer.embed(sampler->timestep(step)));
      if (guidance > 1) guide_channels(guidance, shape[1], predictions[0], predictions[1]);
      sampler->step(step, predictions.back(), x, history, {});
    }
    EXPECT_LT(relative_error(x, expected), 1e-5) << i;

    const Layout latents = Layout::on_one_rank({shape[0], shape[2], shape[3]}, 1, 0);
    const Layout frames =
        latents.without_axis(0).with_axis(0, WanVaeConfig::decoded_frames(shape[0]));
    const Tensor video =
        decoder.pixels({x, latents.with_axis(1, shape[1]), world}, {latents, frames, frames})
            .pixels.local;
    const Tensor kept = stored(i, "frames");
    int largest = 0;
    for (std::int64_t k = 0; k < kept.shape(0); ++k) {
      const auto frame = facts_.at("frames")[std::size_t(k)].get<std::int64_t>();
      const Tensor found = video.rows(frame, 1), exact = kept.rows(k, 1);
      for (std::int64_t j = 0; j < found.numel(); ++j) {
        largest = std::max(
            largest, std::abs(int(found.data<std::uint8_t>()[j]) - int(exact.data<float>()[j])));
      }
    }
    EXPECT_LE(largest, 1) << i;
  }
}

}  // namespace
}  // namespace reelmesh

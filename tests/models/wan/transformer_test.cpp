// Compares Wan's transformer with diffusers, and checks that all layouts give the same bits.
#include "models/wan/transformer.hpp"

#include <array>

#include "layout/clip_layout.hpp"
#include "models/common/asked.hpp"
#include "models/wan/reference.hpp"
#include "models/wan/step_cache.hpp"
#include "support/expect_error.hpp"
#include "support/spread.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::gathered;
using reelmesh::test::relative_error;
using reelmesh::test::rms_error;
using reelmesh::test::same_bits;
using reelmesh::test::spread;
using reelmesh::test::WanReference;

class Transformer : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Transformer,
                         ::testing::Values("float32", "bfloat16", "image", "ends", "ti2v"),
                         [](const auto& kind) { return std::string(kind.param); });

WanTransformer open_transformer(const WanReference& reference, DType dtype,
                                const WeightPlacement& placement = {}) {
  return {reference.weights("transformer"), reference.transformer, dtype, placement};
}

Layout grid_layout(const WanReference& reference, const std::vector<int>& parts) {
  const Shape latents = reference.get("transformer.latents").shape();
  const ops::Patch& patch = reference.transformer.patch;
  return Layout::grid({latents[1], latents[3] / patch.rows, latents[4] / patch.columns}, parts);
}

// Channels [begin, end) of x [frame, channel, row, column].
Tensor channels_of(const Tensor& x, std::int64_t begin, std::int64_t end) {
  const std::int64_t pixels = x.shape(2) * x.shape(3), all = x.shape(1);
  Tensor out = Tensor::empty({x.shape(0), end - begin, x.shape(2), x.shape(3)}, DType::float32);
  for (std::int64_t t = 0; t < x.shape(0); ++t) {
    std::copy_n(x.data<float>() + (t * all + begin) * pixels, (end - begin) * pixels,
                out.data<float>() + t * (end - begin) * pixels);
  }
  return out;
}

// This rank's box of channels [begin, end) of the input of a call, [frame, channel, row, column].
Sharded call_channels(const WanReference& reference, const Layout& grid, std::int64_t call,
                      std::int64_t begin, std::int64_t end) {
  const Tensor input = reference.get("transformer.latents", call);
  const Shape& shape = input.shape();
  const ops::Patch& patch = reference.transformer.patch;
  return spread(
      channels_of(input, begin, end),
      latents_of_tokens(grid, {1, patch.rows, patch.columns}, {shape[0], shape[2], shape[3]})
          .with_axis(1, end - begin));
}

Sharded call_latents(const WanReference& reference, const Layout& grid, std::int64_t call) {
  return call_channels(reference, grid, call, 0, reference.transformer.out_channels);
}

// The channels from `begin` on, as a clip's image; none for text to video.
Tensor call_image(const WanReference& reference, const Layout& grid, std::int64_t call,
                  std::int64_t begin) {
  const WanConfig& c = reference.transformer;
  if (!c.takes_image()) return {};
  return call_channels(reference, grid, call, begin, c.in_channels).local;
}

// The image encoder's rows, [row, channel]; none where the model takes none.
Tensor image_rows(const WanReference& reference) {
  return reference.transformer.vision_channels > 0 ? reference.get("transformer.image_rows")
                                                   : Tensor();
}

// The same for two branches.
Tensor rows_of_branches(const WanReference& reference, DType dtype) {
  const Tensor rows = image_rows(reference);
  if (rows.empty()) return {};
  const Tensor one = rows.reshape({rows.shape(0), 1, rows.shape(1)}).to(dtype);
  return ops::join_batches(std::array{one, one});
}

// Predictions of both branches for the stored calls: [call · branch].
std::vector<Tensor> predictions(const WanReference& reference, const WanTransformer& model,
                                const Layout& grid, int ring = 1) {
  const auto world = test::world();
  const Tensor rows = rows_of_branches(reference, model.dtype());
  const WanPlacement placement(model, world, grid, 2, ring, rows.empty() ? 0 : rows.shape(0));
  const WanContext context =
      model.encode_context(reference.get("transformer.text").to(model.dtype()), rows);
  const Tensor timesteps = reference.get("transformer.timesteps");
  const Tensor time_0 = reference.frame_0 ? model.embed(0) : Tensor();
  std::vector<Tensor> results;
  for (std::int64_t call = 0; call < timesteps.numel(); ++call) {
    const Sharded box = call_latents(reference, grid, call);
    const Tensor time = model.embed(double(timesteps.data<float>()[call]));
    std::vector<Tensor> images;
    if (const Tensor image = call_image(reference, grid, call, reference.transformer.out_channels);
        model.config().takes_image()) {
      images.push_back(image.on(model.device()));
    }
    for (const Tensor& prediction :
         model(placement, {&box.local, 1}, context, time, images, Blocks::compute, {}, time_0)) {
      results.push_back(gathered({prediction, box.layout, world}));
    }
  }
  return results;
}

std::vector<Tensor> expected_predictions(const WanReference& reference) {
  std::vector<Tensor> all;
  for (std::int64_t call = 0; call < 2; ++call) {
    const Tensor both = reference.get("transformer.output", call);
    const Shape one(both.shape().begin() + 1, both.shape().end());
    for (std::int64_t branch = 0; branch < 2; ++branch) {
      all.push_back(both.rows(branch, 1).reshape(one));
    }
  }
  return all;
}

// A wrong order of rotations or features is an error of 0.06 and more, erf in place of tanh 4e-5.
TEST_P(Transformer, EqualsTheReferenceOnEveryLayout) {
  const WanReference reference(GetParam());
  const int ranks = test::world().size();
  const WanTransformer model = open_transformer(reference, DType::float32);
  const auto expected = expected_predictions(reference);
  struct Cut {
    std::vector<int> parts;
    int ring;
  };
  // Ulysses alone, also of more ranks than heads; ring alone; both.
  std::vector<Cut> cuts{{{1, ranks, 1}, 1}, {{ranks, 1, 1}, ranks}, {{1, 1, ranks}, 1}};
  if (ranks % 2 == 0) cuts.push_back({{ranks / 2, 2, 1}, 2});
  if (ranks % 4 == 0) cuts.push_back({{2, 2, ranks / 4}, ranks / 2});
  const std::vector<Tensor> one = predictions(
      reference, model, Layout::on_one_rank(grid_layout(reference, {1, 1, 1}).global(), ranks, 0));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT(relative_error(one[i], expected[i]), 1e-5) << i;
  }
  for (const Cut& cut : cuts) {
    const auto results = predictions(reference, model, grid_layout(reference, cut.parts), cut.ring);
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_TRUE(same_bits(results[i], one[i])) << i << ", ring " << cut.ring;
    }
  }
}

TEST_P(Transformer, InBfloat16IsAsAccurateAsPyTorch) {
  const WanReference reference(GetParam());
  const int ranks = test::world().size();
  const WanTransformer model = open_transformer(reference, DType::bfloat16);
  const auto results = predictions(reference, model, grid_layout(reference, {1, ranks, 1}));
  const auto expected = expected_predictions(reference);
  double squares = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = rms_error(results[i], expected[i]);
    squares += error * error / double(expected.size());
  }
  EXPECT_LT(std::sqrt(squares), 1.5 * reference.bfloat16_error("transformer.output"));
  const auto other = predictions(reference, model, grid_layout(reference, {ranks, 1, 1}), ranks);
  for (std::size_t i = 0; i < other.size(); ++i) EXPECT_TRUE(same_bits(results[i], other[i]));
}

TEST_P(Transformer, HasTheSameBitsWithWeightsElsewhere) {
  const WanReference reference(GetParam());
  const int ranks = test::world().size();
  const Layout grid = grid_layout(reference, {1, ranks, 1});
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const auto kept = predictions(reference, open_transformer(reference, dtype), grid);
    for (const Residence residence : {Residence::sharded, Residence::host}) {
      const WanTransformer model =
          open_transformer(reference, dtype, {.residence = residence, .group = test::world()});
      for (int time = 0; time < 2; ++time) {
        const auto fetched = predictions(reference, model, grid);
        for (std::size_t i = 0; i < kept.size(); ++i) {
          EXPECT_TRUE(same_bits(fetched[i], kept[i])) << i << ", time " << time;
        }
      }
    }
  }
}

// What the pipeline calls: the clips of a batch and their branches do not affect one another, and a
// step without the blocks adds what the last one has kept.
TEST_P(Transformer, PreparedBatchHasTheBitsOfItsClips) {
  const WanReference reference(GetParam());
  const int ranks = test::world().size();
  const WanTransformer model = open_transformer(reference, DType::float32);
  DenoiseLayout layout;
  layout.mesh = {1, 1, ranks};
  layout.tokens = grid_layout(reference, {1, ranks, 1});
  layout.text = Layout::replicated({WanConfig::text_tokens}, ranks);
  const Sharded first = call_latents(reference, layout.tokens, 0),
                second = call_latents(reference, layout.tokens, 1);
  layout.latents = first.layout.without_axis(1);
  const Shape& shape = first.layout.global();
  const DenoiseTask task{.group = test::world(),
                         .layout = layout,
                         .latents = {shape[0], shape[2], shape[3]},
                         .branches = 2,
                         .size = {},
                         .keeps_residual = true};
  // Other texts for the second clip: those of the first, branches exchanged.
  const Tensor text = reference.get("transformer.text");
  Tensor exchanged = Tensor::empty(text.shape(), DType::float32);
  const std::int64_t n = text.shape(2);
  for (std::int64_t i = 0; i < text.shape(0) * 2; ++i) {
    std::copy_n(text.data<float>() + (i ^ 1) * n, n, exchanged.data<float>() + i * n);
  }
  const Tensor time = model.embed(700), later = model.embed(300);
  const WanConfig& c = reference.transformer;
  const std::int64_t condition = c.out_channels + WanConfig::mask_channels;
  std::vector<Conditioning> conditioning;
  for (const Tensor& one : {text, exchanged}) {
    const auto call = std::ssize(conditioning);
    conditioning.push_back({.text = one,
                            .image = reference.frame_0
                                         ? first.local
                                         : call_image(reference, layout.tokens, call, condition),
                            .ends_with_image = c.ends_with_image() && call == 1,
                            .vision = image_rows(reference)});
  }
  const auto both = model.prepare(task, conditioning);
  const std::vector<Tensor> latents{first.local, second.local};
  const auto together = both->predict_together(latents, time, Blocks::compute_and_keep);
  const auto reused = both->predict_together(latents, later, Blocks::reuse);
  ASSERT_EQ(together.size(), 4U);
  for (std::size_t clip = 0; clip < 2; ++clip) {
    const auto alone = model.prepare(task, {&conditioning[clip], 1});
    const std::span<const Tensor> own(&latents[clip], 1);
    const auto results = alone->predict_together(own, time, Blocks::compute_and_keep);
    EXPECT_TRUE(same_bits(alone->residual(0), both->residual(std::int64_t(clip))));
    // An image gives frame 0 timestep 0, a text alone does not.
    if (clip == 0 && reference.frame_0) {
      const WanPlacement placement(model, test::world(), layout.tokens, 2);
      const auto called = [&](const Tensor& time_0) {
        return model(placement, own, model.encode_context(text), time, {}, Blocks::compute, {},
                     time_0)[0];
      };
      EXPECT_TRUE(same_bits(results[0], called(model.embed(0))));
      const Conditioning from_text{text, {}};
      const auto of_text = model.prepare(task, {&from_text, 1});
      EXPECT_TRUE(
          same_bits(of_text->predict_together(own, time, Blocks::compute_and_keep)[0], called({})));
    }
    // As after a restart.
    const auto restarted = model.prepare(task, {&conditioning[clip], 1});
    restarted->set_residual(0, both->residual(std::int64_t(clip)));
    const auto without = restarted->predict_together(own, later, Blocks::reuse);
    for (std::size_t branch = 0; branch < 2; ++branch) {
      EXPECT_TRUE(same_bits(results[branch], together[2 * clip + branch]));
      EXPECT_TRUE(same_bits(without[branch], reused[2 * clip + branch]));
    }
  }
  // With its residual, a step without blocks has the bits of the step that kept it.
  const auto again = both->predict_together(latents, time, Blocks::reuse);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_LT(relative_error(again[i], together[i]), 1e-5);
}

// What TeaCache's rule needs.
TEST_P(Transformer, EmbeddingsOfTimestepsChangeAsInTheReference) {
  const WanReference reference(GetParam());
  if (reference.transformer.takes_image()) GTEST_SKIP() << "as of text to video";
  const Tensor timesteps = reference.get("cache.timesteps"),
               expected = reference.get("cache.changes");
  const std::vector<double> given(timesteps.span<float>().begin(), timesteps.span<float>().end());
  const auto found =
      time_embedding_distances(reference.weights("transformer"), reference.transformer, given);
  ASSERT_EQ(std::ssize(found), expected.numel());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected.data<float>()[i], 1e-5) << i;
  }
  EXPECT_FALSE(known_cache_coefficients(reference.transformer));
  EXPECT_TRUE(known_cache_coefficients(WanConfig{}));  // T2V-14B
  EXPECT_FALSE(known_cache_coefficients(WanConfig{.in_channels = 36, .patch = {}}));
}

TEST(WanConfig, RefusesWhatIsNotSupported) {
  const auto read = [](const std::string& more) {
    WanConfig::read(Config::parse("{" + more + "}", "config.json"));
  };
  read("");
  const std::string image = "\"in_channels\": 36, \"added_kv_proj_dim\": 5120, ";
  read(image + "\"image_dim\": 1280");
  read("\"in_channels\": 36");
  test::expect_error(
      Status::data, [&] { read("\"image_dim\": 1280, \"added_kv_proj_dim\": 5120"); },
      "config.json: image_dim is 1280, expected null for text to video");
  test::expect_error(
      Status::data, [&] { read("\"in_channels\": 36, \"image_dim\": 1280"); },
      "added_kv_proj_dim is null, expected 5120, the channels of the transformer");
  test::expect_error(
      Status::data, [&] { read("\"added_kv_proj_dim\": 5120"); },
      "added_kv_proj_dim is 5120, expected null without image_dim");
  test::expect_error(
      Status::data, [&] { read("\"in_channels\": 36, \"pos_embed_seq_len\": 514"); },
      "pos_embed_seq_len is 514, expected null without image_dim");
  test::expect_error(
      Status::data, [&] { read("\"qk_norm\": \"rms_norm\""); },
      "qk_norm is rms_norm, expected rms_norm_across_heads");
  test::expect_error(
      Status::data, [&] { read("\"in_channels\": 32"); },
      "in_channels is 32, expected 16 (text to video) or 36 (image to video) for 16 out_channels");
  test::expect_error(
      Status::data, [&] { read("\"patch_size\": [2, 2, 2]"); },
      "patch_size is [2, 2, 2], expected three numbers");
  test::expect_error(
      Status::data, [&] { read("\"attention_head_dim\": 7"); },
      "attention_head_dim is 7, expected an even number");
  test::expect_error(
      Status::data, [&] { read("\"_class_name\": \"Other\""); },
      "the class is Other, expected WanTransformer3DModel");
}

}  // namespace
}  // namespace reelmesh

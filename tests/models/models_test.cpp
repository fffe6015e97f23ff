// Compares every model with the reference pipeline, and checks that all layouts give the same bits.
#include "layout/relayout.hpp"
#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/encoder.hpp"
#include "models/cogvideox/transformer.hpp"
#include "models/common/asked.hpp"
#include "models/reference.hpp"
#include "models/t5/t5.hpp"
#include "support/ranks.hpp"
#include "support/spread.hpp"

namespace reelmesh {
namespace {

using reelmesh::test::gathered;
using reelmesh::test::Reference;
using reelmesh::test::relative_error;
using reelmesh::test::rms_error;
using reelmesh::test::same_bits;
using reelmesh::test::spread;

class Kinds : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(CogVideoX, Kinds,
                         ::testing::Values("sincos", "rotary", "v1_5", "i2v", "i2v_1_5"),
                         [](const auto& kind) { return std::string(kind.param); });
class Decoders : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(CogVideoX, Decoders, ::testing::Values("sincos", "rotary", "v1_5"),
                         [](const auto& kind) { return std::string(kind.param); });

std::vector<std::int32_t> token_ids(const Tensor& tokens, std::int64_t row) {
  const Tensor line = tokens.rows(row, 1);
  std::vector<std::int32_t> ids;
  for (const float id : line.span<float>()) ids.push_back(std::int32_t(id));
  return ids;
}

Tensor encode(const T5Layers& layers, const Tensor& tokens) {
  Tensor all = Tensor::empty({tokens.shape(0), tokens.shape(1), 32}, DType::float32);
  for (std::int64_t i = 0; i < tokens.shape(0); ++i) {
    const Tensor one = layers(layers.embed(token_ids(tokens, i))).to(DType::float32);
    std::copy_n(one.data<float>(), one.numel(), all.rows(i, 1).data<float>());
  }
  return all;
}

TEST_P(Kinds, T5EqualsTheReference) {
  const Reference reference(GetParam());
  const auto weights = Checkpoint::open(reference.folder / "text_encoder", "model");
  const T5Part everything{0, reference.t5.num_layers, true, true};
  const Tensor tokens = reference.get("text.tokens"), expected = reference.get("text.embeddings");
  const T5Layers layers(weights, reference.t5, everything, DType::float32);
  EXPECT_LT(relative_error(encode(layers, tokens), expected), 1e-5);
  const T5Layers half(weights, reference.t5, everything, DType::bfloat16);
  EXPECT_LT(rms_error(encode(half, tokens), expected),
            1.5 * reference.bfloat16_errors["text"]["rms"].get<double>());
}

TEST_P(Kinds, T5InPartsHasTheSameBits) {
  const Reference reference(GetParam());
  const auto weights = Checkpoint::open(reference.folder / "text_encoder", "model");
  const std::int64_t n = reference.t5.num_layers;
  const T5Layers whole(weights, reference.t5, {0, n, true, true}, DType::float32);
  const T5Layers front(weights, reference.t5, {0, 1, true, false}, DType::float32);
  const T5Layers middle(weights, reference.t5, {1, n, false, false}, DType::float32);
  const T5Layers end(weights, reference.t5, {n, n, false, true}, DType::float32);
  const auto ids = token_ids(reference.get("text.tokens"), 1);
  EXPECT_TRUE(same_bits(end(middle(front(front.embed(ids)))), whole(whole.embed(ids))));
}

TEST(T5, BucketsFollowTheTable) {
  // Distance → bucket, from the specification's table.
  const std::vector<std::pair<int, int>> starts{{0, 0},   {1, 1},   {7, 7},   {8, 8},
                                                {12, 9},  {16, 10}, {23, 11}, {32, 12},
                                                {46, 13}, {64, 14}, {91, 15}, {500, 15}};
  for (const auto& [distance, bucket] : starts) {
    EXPECT_EQ(t5_bucket(-distance, 32, 128), bucket) << distance;
    if (distance > 0) {
      EXPECT_EQ(t5_bucket(distance, 32, 128), 16 + bucket) << distance;
    }
  }
  for (const int distance : {11, 15, 22, 31, 45, 63, 90}) {
    EXPECT_EQ(t5_bucket(-distance, 32, 128) + 1, t5_bucket(-distance - 1, 32, 128)) << distance;
  }
}

// Predictions of both branches for the stored calls. Video tokens are cut as `grid`, text tokens
// evenly.
std::vector<Tensor> predictions(const Reference& reference, const CogVideoXTransformer& model,
                                const Layout& grid, int ring = 1) {
  const auto world = test::world();
  const auto& c = reference.transformer;
  const Layout text = Layout::cut({reference.get("text.tokens").shape(1)}, 0, world.size());
  const CogVideoXPlacement placement(model, world, grid, text, 2, ring);
  const Tensor embeddings = reference.get("text.embeddings");
  const auto& clip = reference.facts["clips"][0];
  Tensor context = Tensor::empty({embeddings.shape(1), 2, c.text_channels}, DType::float32);
  for (std::int64_t t = 0; t < embeddings.shape(1); ++t) {
    for (std::int64_t branch = 0; branch < 2; ++branch) {
      const auto row = clip[branch == 0 ? "negative_index" : "prompt_index"].get<std::int64_t>();
      const Tensor from = embeddings.rows(row, 1).reshape({embeddings.shape(1), c.text_channels});
      std::copy_n(from.rows(t, 1).data<float>(), c.text_channels,
                  context.data<float>() + (t * 2 + branch) * c.text_channels);
    }
  }
  const Sharded mine = spread(context, text.with_axis(1, 2).with_axis(2, c.text_channels));
  const Tensor latents = reference.get("transformer.latents");
  const Tensor timesteps = reference.get("transformer.timestep");
  const Shape shape(latents.shape().begin() + 1, latents.shape().end());
  const Layout boxes = latents_of_tokens(grid, {c.patch.frames, c.patch.rows, c.patch.columns},
                                         {shape[0], shape[2], shape[3]})
                           .with_axis(1, shape[1]);
  std::vector<Tensor> images;
  if (c.takes_image()) {
    images.push_back(model.patches(spread(reference.get("transformer.image"), boxes).local));
  }
  std::vector<Tensor> results;
  for (std::int64_t call = 0; call < 2; ++call) {
    const Sharded box = spread(latents.rows(call, 1).reshape(shape), boxes);
    for (const Tensor& prediction : model(placement, {&box.local, 1}, mine.local.to(model.dtype()),
                                          std::int64_t(timesteps.data<float>()[call]), images)) {
      results.push_back(gathered({prediction, box.layout, world}));
    }
  }
  return results;
}

Layout grid_layout(const Reference& reference, const std::vector<int>& parts) {
  const auto& c = reference.transformer;
  const Shape latents = reference.get("transformer.latents").shape();  // of two calls
  return Layout::grid(
      {latents[1] / c.patch.frames, latents[3] / c.patch.rows, latents[4] / c.patch.columns},
      parts);
}

TEST_P(Kinds, TransformerEqualsTheReferenceOnEveryLayout) {
  const Reference reference(GetParam());
  const int ranks = test::world().size();
  const auto weights =
      Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model");
  const CogVideoXTransformer model(weights, reference.transformer, DType::float32);
  const Tensor expected = reference.get("transformer.output");
  const Shape one(expected.shape().begin() + 2, expected.shape().end());
  const Tensor flat = expected.reshape({4, numel(one)});
  // The results of the first layout; all others must be bitwise equal.
  std::vector<Tensor> first_results;
  std::vector<Layout> layouts{grid_layout(reference, {1, ranks, 1}),
                              grid_layout(reference, {ranks, 1, 1}),
                              grid_layout(reference, {1, 1, ranks})};
  if (ranks == 4) layouts.push_back(grid_layout(reference, {2, 2, 1}));
  std::vector<Layout> on_one;
  for (std::size_t l = 0; l < layouts.size(); ++l) {
    // Ulysses only, ring only, and with four ranks a mesh of ring 2 x Ulysses 2.
    const int ring = l == 1 ? ranks : l == 3 ? 2 : 1;
    const auto results = predictions(reference, model, layouts[l], ring);
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_LT(relative_error(results[std::size_t(i)], flat.rows(i, 1)), 1e-4);
    }
    if (first_results.empty()) first_results = results;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(same_bits(results[i], first_results[i]));
  }
  const auto one_rank = predictions(
      reference, model, Layout::on_one_rank(grid_layout(reference, {1, 1, 1}).global(), ranks, 0));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(same_bits(one_rank[i], first_results[i]));
}

TEST_P(Kinds, TransformerInBfloat16IsAsAccurateAsPyTorch) {
  const Reference reference(GetParam());
  const int ranks = test::world().size();
  const auto weights =
      Checkpoint::open(reference.folder / "transformer", "diffusion_pytorch_model");
  const CogVideoXTransformer model(weights, reference.transformer, DType::bfloat16);
  const auto results = predictions(reference, model, grid_layout(reference, {1, ranks, 1}));
  const Tensor expected = reference.get("transformer.output");
  const std::int64_t n = expected.numel() / 4;
  const Tensor all = Tensor::empty({4, n}, DType::float32);
  for (std::int64_t i = 0; i < 4; ++i) {
    std::copy_n(results[std::size_t(i)].data<float>(), n, all.rows(i, 1).data<float>());
  }
  EXPECT_LT(rms_error(all, expected),
            1.5 * reference.bfloat16_errors["transformer"]["rms"].get<double>());
  const auto other = predictions(reference, model, grid_layout(reference, {ranks, 1, 1}));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(same_bits(results[i], other[i]));
}

// Decoded frames [frame, row, column, 3] of latents [channel, frame, row, column] that are already
// divided by the scaling factor. rows: layout of the latent rows.
Tensor decoded(const Reference& reference, const CogVideoXDecoder& decoder, const Tensor& latents,
               const Layout& rows) {
  const auto world = test::world();
  const std::int64_t channels = latents.shape(0), frames = latents.shape(1);
  const std::int64_t pixels = latents.shape(2) * latents.shape(3);
  Tensor sampler =
      Tensor::empty({frames, channels, latents.shape(2), latents.shape(3)}, DType::float32);
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t i = 0; i < frames * pixels; ++i) {
      sampler.data<float>()[(i / pixels * channels + c) * pixels + i % pixels] =
          latents.data<float>()[c * frames * pixels + i] * float(reference.vae.scaling_factor);
    }
  }
  const Layout layout =
      rows.with_axis(0, channels).with_axis(0, frames).with_axis(3, latents.shape(3));
  const Sharded box = spread(sampler, layout);
  const Layout out = rows.scaled(0, 8)
                         .with_axis(0, decoded_frames(frames))
                         .with_axis(2, latents.shape(3) * 8)
                         .with_axis(3, 3);
  Sharded video{Tensor::empty(out.box(world.rank()).extent, DType::float32), out, world};
  decoder.decode(box, [&](std::int64_t first, const Tensor& batch) {
    if (batch.empty()) return;
    const Tensor values = batch.to(DType::float32);
    std::copy_n(values.data<float>(), values.numel(),
                video.local.rows(first, batch.shape(0)).data<float>());
  });
  return gathered(video);
}

// The error of a video [frame, row, column, 3] in the k stored frames. expected: [3, k, row,
// column]; frames: their indices.
double error_against(const Tensor& video, const Tensor& expected, const Tensor& frames, bool rms) {
  const std::int64_t rows = video.shape(1), columns = video.shape(2), k = expected.shape(1);
  Tensor mine = Tensor::empty(expected.shape(), DType::float32);
  for (std::int64_t c = 0; c < 3; ++c) {
    for (std::int64_t i = 0; i < k * rows * columns; ++i) {
      const auto frame = std::int64_t(frames.data<float>()[i / (rows * columns)]);
      mine.data<float>()[c * k * rows * columns + i] =
          video.data<float>()[(frame * rows * columns + i % (rows * columns)) * 3 + c];
    }
  }
  return rms ? rms_error(mine, expected) : relative_error(mine, expected);
}

TEST_P(Decoders, EqualTheReferenceOnEveryLayout) {
  const Reference reference(GetParam());
  const int ranks = test::world().size();
  const auto weights = Checkpoint::open(reference.folder / "vae", "diffusion_pytorch_model");
  const CogVideoXDecoder decoder(weights, reference.vae, DType::float32);
  for (const int frames : {1, 2, 3, 5}) {
    const std::string n = std::to_string(frames);
    const Tensor latents = reference.get("vae.latents_" + n);
    const Tensor video = decoded(reference, decoder, latents, Layout::cut({7}, 0, ranks));
    EXPECT_LT(error_against(video, reference.get("vae.decoded_" + n),
                            reference.get("vae.frames_" + n), false),
              2e-5)
        << frames << " latent frames";
    const Tensor on_one =
        decoded(reference, decoder, latents, Layout::on_one_rank({7}, ranks, ranks - 1));
    EXPECT_TRUE(same_bits(video, on_one)) << frames << " latent frames";
  }
}

TEST_P(Decoders, InBfloat16AreAsAccurateAsPyTorch) {
  const Reference reference(GetParam());
  const int ranks = test::world().size();
  const auto weights = Checkpoint::open(reference.folder / "vae", "diffusion_pytorch_model");
  const CogVideoXDecoder decoder(weights, reference.vae, DType::bfloat16);
  for (const int frames : {1, 2, 3, 5}) {
    const std::string n = std::to_string(frames);
    const Tensor video =
        decoded(reference, decoder, reference.get("vae.latents_" + n), Layout::cut({7}, 0, ranks));
    EXPECT_LT(error_against(video, reference.get("vae.decoded_" + n),
                            reference.get("vae.frames_" + n), true),
              1.5 * reference.bfloat16_errors["vae"][n]["rms"].get<double>())
        << frames << " latent frames";
  }
}

TEST(Positions, EqualTheReference) {
  const Reference sincos("sincos");
  const Shape grid = grid_layout(sincos, {1, 1, 1}).global();
  EXPECT_LT(relative_error(sincos_positions(sincos.transformer, whole_box(grid)),
                           sincos.get("positions")),
            1e-6);
  for (const char* kind : {"rotary", "v1_5", "i2v", "i2v_1_5"}) {
    const Reference reference(kind);
    const Shape tokens = grid_layout(reference, {1, 1, 1}).global();
    const RotaryTables tables = rotary_positions(reference.transformer, tokens, whole_box(tokens));
    EXPECT_LT(relative_error(tables.cosines, reference.get("rotary.cos")), 1e-6) << kind;
    EXPECT_LT(relative_error(tables.sines, reference.get("rotary.sin")), 1e-6) << kind;
  }
}

TEST(Decoder, BatchesFramesAsTheReference) {
  using Batches = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(decode_batches(1), (Batches{{0, 1}}));
  EXPECT_EQ(decode_batches(2), (Batches{{0, 2}}));
  EXPECT_EQ(decode_batches(3), (Batches{{0, 3}}));
  EXPECT_EQ(decode_batches(4), (Batches{{0, 2}, {2, 2}}));
  EXPECT_EQ(decode_batches(7), (Batches{{0, 3}, {3, 2}, {5, 2}}));
  for (const auto& [latents, frames] : std::vector<std::pair<int, int>>{
           {1, 1}, {2, 8}, {3, 9}, {5, 17}, {12, 48}, {13, 49}, {21, 81}}) {
    EXPECT_EQ(decoded_frames(latents), frames);
  }
}

ExpectedShapes vae_tensors() {
  const CogVideoXVaeConfig config;
  ExpectedShapes all = tensors_of<CogVideoXDecoder>(config);
  all.merge(tensors_of<CogVideoXEncoder>(config));
  return all;
}

// Numbers of tensors and parameters of the released checkpoints.
TEST(ExpectedTensors, CountTheReleasedParameters) {
  const auto parameters = [](const ExpectedShapes& shapes) {
    std::int64_t sum = 0;
    for (const auto& [name, shape] : shapes) sum += numel(shape);
    return sum;
  };
  CogVideoXConfig c;  // the defaults are those of 2b
  EXPECT_EQ(parameters(tensors_of<CogVideoXTransformer>(c)), 1'693'783'872);
  EXPECT_EQ(tensors_of<CogVideoXTransformer>(c).size(), 736U);
  c.heads = 48;
  c.layers = 42;
  c.rotary = true;
  EXPECT_EQ(parameters(tensors_of<CogVideoXTransformer>(c)), 5'570'283'072);
  EXPECT_EQ(tensors_of<CogVideoXTransformer>(c).size(), 1024U);
  c.patch.frames = 2;
  c.linear_patch = true;
  EXPECT_EQ(parameters(tensors_of<CogVideoXTransformer>(c)), 5'570'676'352);
  EXPECT_EQ(parameters(vae_tensors()), 215'583'907);
  EXPECT_EQ(vae_tensors().size(), 436U);
  EXPECT_EQ(parameters(tensors_of<CogVideoXDecoder>(CogVideoXVaeConfig())), 123'368'451);
  T5Config t5;
  t5.d_model = 4096;
  t5.d_ff = 10240;
  t5.num_layers = 24;
  t5.num_heads = 64;
  EXPECT_EQ(parameters(tensors_of<T5Layers>(t5, T5Part::whole(t5))), 4'762'310'656);
  EXPECT_EQ(tensors_of<T5Layers>(t5, T5Part::whole(t5)).size(), 219U);
}

}  // namespace
}  // namespace reelmesh

// Estimates of the memory of models on a GPU, for weights and work, compared with measurements.
#include "models/cogvideox/memory.hpp"
#include "gpu_ranks/ranks.hpp"
#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/encoder.hpp"
#include "models/cogvideox/transformer.hpp"
#include "models/opensora/memory.hpp"
#include "models/opensora/transformer.hpp"
#include "models/reference.hpp"
#include "models/t5/memory.hpp"
#include "opensora/reference.hpp"
#include "ops/attention.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::test {
namespace {

class MemoryOnGpu : public OnOwnDevice<testing::TestWithParam<DType>> {
 protected:
  void SetUp() override {
    OnOwnDevice::SetUp();
    if (test::world().size() > 1) GTEST_SKIP() << "of a rank by itself: on a group of one";
  }
  Precision precision() const { return {GetParam(), GetParam(), true}; }
  Checkpoint open(const char* part, const char* stem) const {
    return Checkpoint::open(reference.folder / part, stem).on(device);
  }
  std::int64_t present() const { return device_memory(device).present; }
  // Peak bytes of `work` beyond the present ones; called twice, as libraries allocate workspaces.
  template <class F>
  std::int64_t needed(F&& work) const {
    work();
    const std::int64_t before = present();
    cuda::peak_since_last(device);
    work();
    return cuda::peak_since_last(device) - before;
  }
  void expect_near(std::int64_t said, std::int64_t found, const char* what) const {
    EXPECT_LE(found, said) << what;
    EXPECT_GE(5 * found, 4 * said) << what;
  }

  Reference reference{"sincos"};
  const comm::Group& self = test::world();
};
INSTANTIATE_TEST_SUITE_P(Types, MemoryOnGpu, testing::Values(DType::float32, DType::bfloat16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(MemoryOnGpu, OfT5) {
  const T5Config& c = reference.t5;
  const std::int64_t before = present();
  const T5Layers t5(open("text_encoder", "model"), c, {0, c.num_layers, true, true}, GetParam());
  expect_near(weight_bytes(t5_tensors(c), precision()), present() - before, "weights");
  const std::vector<std::int32_t> ids(64, 3), one(1, 3);
  const auto encode = [&] {
    t5(t5.embed(ids));
    t5(t5.embed(one));  // so that the position bias of 64 tokens is made each time
  };
  expect_near(t5_working_bytes(c, 64, precision()), needed(encode), "work");
}

TEST_P(MemoryOnGpu, OfTheTransformer) {
  for (const char* kind : {"sincos", "i2v", "i2v_1_5"}) {
    const Reference of(kind);
    const CogVideoXConfig& c = of.transformer;
    const std::int64_t before = present();
    const CogVideoXTransformer transformer(
        Checkpoint::open(of.folder / "transformer", "diffusion_pytorch_model").on(device), c,
        GetParam());
    expect_near(weight_bytes(cogvideox_layer_tensors(c), precision()), present() - before, kind);
    const Shape tokens = c.sample_tokens();
    const Layout grid = Layout::cut(tokens, 0, 1), text = Layout::cut({19}, 0, 1);
    const std::int64_t all = present();
    const CogVideoXPlacement placement(transformer, self, grid, text, 2);
    const auto latents = [&](std::int64_t channels) {
      return Tensor::zeros({tokens[0] * c.patch.frames, channels, tokens[1] * c.patch.rows,
                            tokens[2] * c.patch.columns},
                           DType::float32, device);
    };
    const Tensor noise = latents(c.latent_channels());
    const Tensor context = Tensor::zeros({19, 2, c.text_channels}, GetParam(), device);
    std::vector<Tensor> images, of_sampler;  // which keeps predictions of earlier steps
    for (int i = 0; i < 4; ++i) of_sampler.push_back(latents(c.latent_channels()));
    if (c.takes_image()) images.push_back(transformer.patches(latents(c.image_channels())));
    const std::int64_t held = present() - all, video = numel(tokens);
    const CogVideoXSizes sizes{2, 19, video, 19 + video, c.heads, 19 + video, true, false};
    expect_near(cogvideox_working_bytes(c, sizes, precision()),
                held + needed([&] {
                  transformer(placement, {&noise, 1}, context, std::int64_t{500}, images);
                }),
                kind);
  }
}

TEST_P(MemoryOnGpu, OfAttentionWithinFrames) {
  const std::int64_t frames = 16, tokens = 60;
  const Tensor queries = Tensor::zeros({frames * tokens, 2, 4, 72}, GetParam(), device);
  const Tensor keys_values = Tensor::zeros({frames * tokens, 2, 2, 4, 72}, GetParam(), device);
  expect_near(attention_bytes({tokens, tokens, frames * 2 * 4, 72}, precision()), needed([&] {
                ops::Attention attention(queries, 0.125F, frames);
                attention.add(keys_values);
                attention.finish();
              }),
              "work");
}

TEST_P(MemoryOnGpu, OfOpenSorasTransformer) {
  for (const char* kind : {"v1_0", "v1_2"}) {
    const OpenSoraReference open_sora(kind);
    const STDiTConfig& c = open_sora.transformer;
    const STDiT transformer(
        Checkpoint::open(open_sora.folder / "transformer", "diffusion_pytorch_model").on(device), c,
        GetParam());
    const STDiTClip clip{{4, 8, 4}, 64, 32, 8};
    const std::int64_t clips = 2, positions = 4 * 2, text_tokens = 9;
    const Tensor text = Tensor::zeros({text_tokens, c.text_channels}, GetParam(), device);
    (void)transformer.encode_context(text);  // libraries allocate their workspaces
    const std::int64_t all = present();
    const STDiTPlacement placement(transformer, self,
                                   SpaceTime(clip.tokens(c.patch), 1, 1, c.heads), clip, clips);
    const std::vector<Tensor> latents(
        clips, Tensor::zeros({4, c.in_channels, 8, 4}, DType::float32, device));
    const std::vector<STDiTContext> texts(clips, transformer.encode_context(text));
    const std::int64_t held = present() - all;
    const STDiTSizes sizes{
        clips * STDiT::branches, text_tokens, {4, positions}, {4, positions}, positions, 0, true};
    const std::int64_t said = stdit_working_bytes(c, sizes, precision());
    const std::int64_t found = held + needed([&] { transformer(placement, latents, texts, 500); });
    EXPECT_LE(found, said) << kind;
    EXPECT_GE(10 * found, 6 * said) << kind;  // the estimate has room for the CPU's feed-forward
  }
}

TEST_P(MemoryOnGpu, OfTheDecoder) {
  const CogVideoXVaeConfig& c = reference.vae;
  const std::int64_t before = present();
  const CogVideoXDecoder decoder(open("vae", "diffusion_pytorch_model"), c, GetParam());
  expect_near(weight_bytes(cogvideox_decoder_tensors(c), precision()), present() - before,
              "weights");
  const Shape shape{3, c.latent_channels, 14, 10};
  const Sharded latents{Tensor::zeros(shape, DType::float32), Layout::cut(shape, 0, 1), self};
  // The emulated cuDNN needs no workspace.
  const std::int64_t said = cogvideox_decode_bytes(c, {3, 14, 10}, precision());
  const Layout frames = Layout::cut({decoded_frames(3), 14, 10}, 0, 1);
  const DecodeLayout layout{Layout::cut({3, 14, 10}, 0, 1), frames, frames};
  expect_near(said - convolution_workspace_bytes, needed([&] { decoder.pixels(latents, layout); }),
              "work");
}

TEST_P(MemoryOnGpu, OfTheEncoder) {
  const CogVideoXVaeConfig& c = reference.vae;
  const std::int64_t before = present();
  const CogVideoXEncoder encoder(open("vae", "diffusion_pytorch_model"), c, GetParam());
  expect_near(weight_bytes(cogvideox_encoder_tensors(c), precision()), present() - before,
              "weights");
  const Shape shape{17, 112, 80, 3};
  const Sharded pixels{Tensor::zeros(shape, DType::uint8), Layout::cut(shape, 0, 1), self};
  const Layout latents = Layout::cut({5, 14, 10}, 0, 1);
  const std::int64_t said = cogvideox_encode_bytes(c, {5, 14, 10}, 17, precision());
  expect_near(said - convolution_workspace_bytes, needed([&] {
                encoder.sample(pixels, latents, 1,
                               [](std::span<float> noise) { std::ranges::fill(noise, 0.0F); });
              }),
              "work");
}

}  // namespace
}  // namespace reelmesh::test

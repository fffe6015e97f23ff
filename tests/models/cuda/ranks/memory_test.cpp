// What dry runs count for a GPU, for weights and work, compared with measurements.
#include "models/decode_layouts.hpp"
#include "models/dry_run.hpp"
#include "models/opensora/reference.hpp"
#include "models/wan/reference.hpp"
#include "ops/cuda/convolution.hpp"
#include "support/gpu_ranks.hpp"
#include "support/long.hpp"
#include "support/test_device.hpp"
#include "tensor/cuda/runtime.hpp"

namespace reelmesh::test {
namespace {

class MemoryOnGpu : public OnOwnDevice<testing::TestWithParam<DType>> {
 protected:
  void SetUp() override {
    OnOwnDevice::SetUp();
    if (test::world().size() > 1) GTEST_SKIP() << "of a rank by itself: on a group of one";
    if (GetParam() == DType::float32 && !tests_are_long()) GTEST_SKIP() << "only in tests/long";
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
  // allowance: bytes of the libraries' workspaces that a dry run counts, and the emulated ones do
  // not need.
  template <class Make, class Use>
  void expect_as_foreseen(const Checkpoint& weights, const Make& make, const Use& use,
                          const std::string& what, std::int64_t allowance = 0) const {
    const Taken said = taken_by_dry_run(precision(), make, use);
    const std::int64_t before = present();
    const auto model = make(weights);
    expect_near(said.weights, present() - before, what + ": weights");
    const std::int64_t flops = trace::recorder().flops;
    use(model, self, device);
    EXPECT_EQ(said.flops, trace::recorder().flops - flops) << what;
    expect_near(said.working - allowance, needed([&] { use(model, self, device); }), what);
  }
  void expect_near(std::int64_t said, std::int64_t found, const std::string& what) const {
    EXPECT_LE(found, said + said / 100) << what;
    EXPECT_GE(5 * found, 4 * said) << what;
  }

  Reference reference{"sincos"};
  const comm::Group& self = test::world();
};
INSTANTIATE_TEST_SUITE_P(Types, MemoryOnGpu, testing::Values(DType::float32, DType::bfloat16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(MemoryOnGpu, OfT5) {
  const T5Config& c = reference.t5;
  expect_as_foreseen(
      open("text_encoder", "model"),
      [&](const Checkpoint& weights) { return T5Layers(weights, c, T5Part::whole(c), GetParam()); },
      encode_text(64), "T5");
}

TEST_P(MemoryOnGpu, OfTheTransformers) {
  for (const char* kind : {"sincos", "i2v", "i2v_1_5"}) {
    const Reference of(kind);
    expect_as_foreseen(
        Checkpoint::open(of.folder / "transformer", "diffusion_pytorch_model").on(device),
        [&](const Checkpoint& weights) {
          return CogVideoXTransformer(weights, of.transformer, GetParam());
        },
        denoise(of.transformer, of.transformer.max_text_tokens), kind);
  }
  for (const char* kind : {"v1_0", "v1_2"}) {
    const OpenSoraReference of(kind);
    expect_as_foreseen(
        Checkpoint::open(of.folder / "transformer", "diffusion_pytorch_model").on(device),
        [&](const Checkpoint& weights) { return STDiT(weights, of.transformer, GetParam()); },
        denoise(of.transformer, 9, 2), kind);
  }
}

TEST_P(MemoryOnGpu, OfWan) {
  const WanReference of("bfloat16");
  expect_as_foreseen(
      of.weights("transformer").on(device),
      [&](const Checkpoint& weights) {
        return WanTransformer(weights, of.transformer, GetParam());
      },
      denoise(of.transformer), "Wan");
  expect_as_foreseen(of.weights("transformer").on(device),
                     experts_in_turn(of.transformer, GetParam()),
                     denoise_in_turn(of.transformer, GetParam()), "experts in turn");
}

TEST_P(MemoryOnGpu, OfTheAutoencoder) {
  const CogVideoXVaeConfig& c = reference.vae;
  const std::int64_t rows = size(8, 14), columns = size(6, 10);
  const Shape latents{3, c.latent_channels, rows, columns};
  expect_as_foreseen(
      open("vae", "diffusion_pytorch_model"),
      [&](const Checkpoint& weights) { return CogVideoXDecoder(weights, c, GetParam()); },
      decode(latents, cogvideox_decode_layout(c, latents, 1)), "decoder",
      gpu::Convolution::max_workspace);
  expect_as_foreseen(
      open("vae", "diffusion_pytorch_model"),
      [&](const Checkpoint& weights) { return CogVideoXEncoder(weights, c, GetParam()); },
      encode(size(9, 17), {size(3, 5), rows, columns}), "encoder", gpu::Convolution::max_workspace);
}

}  // namespace
}  // namespace reelmesh::test

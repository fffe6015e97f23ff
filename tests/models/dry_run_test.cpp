// Dry runs of the models' parts count what the same code takes: weights and operations exactly, the
// peak within a thousandth. And how memory of packed layers is foreseen for other processors.
#include <numeric>

#include "models/autoencoder/decoder.hpp"
#include "models/autoencoder/encoder.hpp"
#include "models/clip/vision.hpp"
#include "models/decode_layouts.hpp"
#include "models/dry_run.hpp"
#include "models/opensora/reference.hpp"
#include "models/wan/decoder.hpp"
#include "models/wan/encoder.hpp"
#include "models/wan/reference.hpp"
#include "ops/amx.hpp"
#include "ops/packing.hpp"
#include "ops/products.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

// Type of the tensors, and whether products are in bfloat16, if this processor has them. ctest also
// runs these tests with oneDNN restricted to older instruction sets (tests/CMakeLists.txt).
struct Types {
  DType tensors;
  bool narrow_products;
};

class DryRuns : public ::testing::TestWithParam<Types> {
 protected:
  ~DryRuns() override { ops::choose_products(Products::automatic); }

  void SetUp() override {
    if (test::world().size() > 1) GTEST_SKIP() << "of a rank by itself: on a group of one";
  }

  DType dtype() const { return GetParam().tensors; }
  Precision precision_{GetParam().tensors, products()};

  template <class Make, class Use>
  test::Taken taken(const Checkpoint& weights, const Make& make, const Use& use) const {
    const auto sum = [](const auto& bytes) {
      return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
    };
    const trace::Recorder& recorder = trace::recorder();
    const std::int64_t before = sum(memory_by_purpose(false).present);
    const auto model = make(weights);
    test::Taken found{.weights = sum(memory_by_purpose(false).present) - before};
    forget_memory_peaks();
    const std::int64_t flops = recorder.flops, bytes = recorder.memory_bytes;
    use(model, test::world(), Device{});
    found.working = sum(memory_by_purpose(false).at_peak) - before - found.weights;
    found.flops = recorder.flops - flops;
    found.memory_bytes = recorder.memory_bytes - bytes;
    return found;
  }

  /// make(checkpoint) → a model, which use(…) runs.
  template <class Make, class Use>
  void expect_as_foreseen(const Checkpoint& weights, const Make& make, const Use& use,
                          const std::string& what) const {
    const test::Taken said = test::taken_by_dry_run(precision_, make, use);
    const test::Taken found = taken(weights, make, use);
    EXPECT_EQ(said.weights, found.weights) << what;
    EXPECT_NEAR(double(said.working), double(found.working), 1e-3 * double(found.working)) << what;
    EXPECT_EQ(said.flops, found.flops) << what;
    EXPECT_EQ(said.memory_bytes, found.memory_bytes) << what;
    EXPECT_GT(found.flops, 0) << what;
  }

 private:
  static DType products() {  // for the whole test
    const bool narrow = GetParam().narrow_products && ops::has_bfloat16_products();
    ops::choose_products(narrow ? Products::bfloat16 : Products::float32);
    return ops::compute_dtype(GetParam().tensors);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, DryRuns,
                         ::testing::Values(Types{DType::float32, false},
                                           Types{DType::bfloat16, false},
                                           Types{DType::bfloat16, true}),
                         [](const auto& type) {
                           return std::string(name_of(type.param.tensors)) +
                                  (type.param.narrow_products ? "_products" : "");
                         });

TEST_P(DryRuns, PackedKeysAndValues) {
  const DType products = precision_.products;
  const auto packed = [&](std::int64_t k, std::int64_t n) {
    return size_of(products) * (ops::uses_amx(products)
                                    ? ops::amx::packed_elements(n, k)
                                    : ops::TileProduct(64, n, k, products).packed_elements());
  };
  for (const std::int64_t keys : {15, 16, 64, 120, 256, 368, 512, 1000}) {
    for (const std::int64_t channels : {64, 72}) {
      const std::int64_t blocks = (keys + 511) / 512, rest = keys % 512;
      std::int64_t of_keys = 0, of_values = 0;
      for (const std::int64_t n : {keys >= 512 ? 512 : rest, rest > 0 ? rest : 512}) {
        of_keys = std::max(of_keys, packed(channels, n));
        of_values = std::max(of_values, packed(n, channels));
      }
      EXPECT_EQ(ops::packed_attention_bytes(keys, channels, products, PackedFor::this_processor),
                blocks * (of_keys + of_values))
          << keys << " keys of " << channels;
    }
  }
}

// Estimates for unknown processors are sufficient for this one, and only slightly larger.
TEST_P(DryRuns, OnAnyProcessorEnoughForThisOne) {
  const DType products = precision_.products;
  for (const std::int64_t n : {16, 24, 32, 48, 64, 96, 160, 176, 192}) {
    for (const std::int64_t k : {15, 64, 72, 512, 1152, 1920, 4096, 10240}) {
      const auto bytes = [&](PackedFor target) {
        return ops::packed_matrix_bytes(k, n, products, target);
      };
      EXPECT_GE(bytes(PackedFor::any_processor), bytes(PackedFor::this_processor))
          << k << " x " << n;
      EXPECT_GE(bytes(PackedFor::any_processor), k * n * size_of(products));
    }
  }
  for (const Shape& shape : {Shape{512, 512, 3, 3}, {3, 128, 3, 3}, {512, 16, 3, 3, 3}}) {
    const auto bytes = [&](PackedFor target) {
      return ops::packed_convolution_bytes(shape, products, target);
    };
    EXPECT_GE(bytes(PackedFor::any_processor), bytes(PackedFor::this_processor))
        << to_string(shape);
  }
}

// oneDNN cannot be queried for types that this processor does not compute products in.
TEST(PackedSizes, AreTheLargestForUnsupportedTypes) {
  if (ops::compute_dtype(DType::bfloat16) == DType::bfloat16) GTEST_SKIP() << "it is, here";
  for (const std::int64_t n : {64, 192}) {
    const auto bytes = [&](PackedFor target) {
      return ops::packed_matrix_bytes(10240, n, DType::bfloat16, target);
    };
    EXPECT_EQ(bytes(PackedFor::this_processor), bytes(PackedFor::any_processor));
  }
  // 64 columns may be packed as two blocks of 48.
  EXPECT_EQ(ops::packed_matrix_bytes(10240, 64, DType::bfloat16, PackedFor::any_processor),
            10240 * 96 * 2);
}

// An image, and clips of one, two and three batches.
TEST_P(DryRuns, EncodingAClip) {
  const test::Reference r("rotary");
  const auto make = [&](const Checkpoint& weights) {
    return CogVideoXEncoder(weights, r.vae, dtype());
  };
  for (const std::int64_t frames : {1, 13, 17, 24}) {
    expect_as_foreseen(Checkpoint::open(r.folder / "vae", "diffusion_pytorch_model"), make,
                       test::encode(frames, {encoded_frames(frames), 9, 8}),
                       fmt::format("{} frames", frames));
  }
}

TEST_P(DryRuns, CogVideoX) {
  for (const char* kind : {"sincos", "rotary", "v1_5", "i2v", "i2v_1_5"}) {
    const test::Reference r(kind);
    const auto open = [&](const char* part, const char* stem) {
      return Checkpoint::open(r.folder / part, stem);
    };
    expect_as_foreseen(
        open("text_encoder", "model"),
        [&](const Checkpoint& weights) {
          return T5Layers(weights, r.t5, T5Part::whole(r.t5), dtype());
        },
        test::encode_text(19), std::string(kind) + " text");
    expect_as_foreseen(
        open("transformer", "diffusion_pytorch_model"),
        [&](const Checkpoint& weights) {
          return CogVideoXTransformer(weights, r.transformer, dtype());
        },
        test::denoise(r.transformer, r.transformer.max_text_tokens), std::string(kind) + " step");
    const Shape latents{5, r.vae.latent_channels, 9, 8};
    expect_as_foreseen(
        open("vae", "diffusion_pytorch_model"),
        [&](const Checkpoint& weights) { return CogVideoXDecoder(weights, r.vae, dtype()); },
        test::decode(latents, test::cogvideox_decode_layout(r.vae, latents, 1)),
        std::string(kind) + " decode");
  }
}

TEST_P(DryRuns, WanFromImages) {
  for (const char* kind : {"image", "ends"}) {
    const test::WanReference r(kind);
    expect_as_foreseen(
        r.weights("transformer"),
        [&](const Checkpoint& weights) { return WanTransformer(weights, r.transformer, dtype()); },
        test::denoise(r.transformer), std::string(kind) + " step");
  }
  const test::WanReference r("image");
  const auto config = ClipVisionConfig::read(Config::read(r.folder / "image_encoder/config.json"));
  expect_as_foreseen(
      Checkpoint::open(r.folder / "image_encoder", "model"),
      [&](const Checkpoint& weights) { return ClipVision(weights, config, dtype()); },
      [&](const ClipVision& encoder, const comm::Group&, Device device) {
        encoder.embed(Tensor::zeros({1, 3, config.image_size, config.image_size}, DType::float32,
                                    device.host()));
      },
      "image encoder");
}

TEST_P(DryRuns, Wan) {
  for (const char* kind : {"float32", "bfloat16", "ti2v"}) {
    const test::WanReference r(kind);
    expect_as_foreseen(
        r.weights("transformer"),
        [&](const Checkpoint& weights) { return WanTransformer(weights, r.transformer, dtype()); },
        test::denoise(r.transformer, r.frame_0), std::string(kind) + " step");
    if (!r.frame_0) {
      expect_as_foreseen(r.weights("transformer"), test::experts_in_turn(r.transformer, dtype()),
                         test::denoise_in_turn(r.transformer, dtype()),
                         std::string(kind) + " steps of experts");
    }
    const Shape latents{4, r.vae.latent_channels, 9, 8};
    expect_as_foreseen(
        r.weights("vae"),
        [&](const Checkpoint& weights) { return WanDecoder(weights, r.vae, dtype()); },
        test::decode(latents, test::wan_decode_layout(r.vae, latents, 1)),
        std::string(kind) + " decode");
    expect_as_foreseen(
        r.weights("vae"),
        [&](const Checkpoint& weights) { return WanEncoder(weights, r.vae, dtype()); },
        test::encode(13, {WanVaeConfig::latent_frames(13), 4, 6}, r.vae.pixels_per_latent()),
        std::string(kind) + " encode");
  }
}

TEST_P(DryRuns, OpenSora) {
  for (const char* kind : {"v1_0", "v1_2"}) {
    const test::OpenSoraReference r(kind);
    expect_as_foreseen(
        Checkpoint::open(r.folder / "transformer", "diffusion_pytorch_model"),
        [&](const Checkpoint& weights) { return STDiT(weights, r.transformer, dtype()); },
        test::denoise(r.transformer, 9, 2), std::string(kind) + " step");
    const auto vae = OpenSoraVaeConfig::read(Config::read(r.folder / "vae" / "config.json"));
    const Shape latents{5, vae.image.latent_channels, 4, 6};
    const std::int64_t frames = vae.temporal ? vae.temporal->micro_frames : 5;
    expect_as_foreseen(
        Checkpoint::open(r.folder / "vae", "diffusion_pytorch_model"),
        [&](const Checkpoint& weights) { return OpenSoraDecoder(weights, vae, dtype()); },
        test::decode(latents, test::opensora_decode_layout(vae, latents, frames, 1)),
        std::string(kind) + " decode");
    expect_as_foreseen(
        Checkpoint::open(r.folder / "vae", "diffusion_pytorch_model"),
        [&](const Checkpoint& weights) { return OpenSoraEncoder(weights, vae, dtype()); },
        test::encode(20, {vae.latent_frames(20), 4, 6}), std::string(kind) + " encode");
  }
}

}  // namespace
}  // namespace reelmesh

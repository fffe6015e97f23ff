// Compares memory estimates with the memory that layers use.
#include <numeric>

#include "models/autoencoder/decoder.hpp"
#include "models/autoencoder/memory.hpp"
#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/encoder.hpp"
#include "models/cogvideox/memory.hpp"
#include "models/cogvideox/transformer.hpp"
#include "models/opensora/memory.hpp"
#include "models/opensora/transformer.hpp"
#include "models/reference.hpp"
#include "models/t5/memory.hpp"
#include "opensora/reference.hpp"
#include "ops/amx.hpp"
#include "ops/attention.hpp"
#include "ops/convolution.hpp"
#include "ops/packing.hpp"
#include "ops/products.hpp"
#include "support/ranks.hpp"
#include "tensor/memory.hpp"
#include "tensor/purpose.hpp"

namespace reelmesh {
namespace {

// Type of the tensors, and whether products are in bfloat16, if this processor has them. ctest also
// runs these tests with oneDNN restricted to older instruction sets (tests/CMakeLists.txt).
struct Types {
  DType tensors;
  bool narrow_products;
};

class WeightBytes : public ::testing::TestWithParam<Types> {
 protected:
  ~WeightBytes() override { ops::choose_products(Products::automatic); }

  void SetUp() override {
    if (test::world().size() > 1) GTEST_SKIP() << "of a rank by itself: on a group of one";
  }

  DType dtype() const { return GetParam().tensors; }
  Precision precision_{GetParam().tensors, products()};

  // Not exact, because bytes() of some layers leaves out norms and tables, and the padding of tiny
  // layers depends on which ones are fused. For layers of released widths it is exact (below).
  void expect_close(std::int64_t said, std::int64_t held) const {
    EXPECT_NEAR(double(said), double(held), 0.15 * double(held));
  }

 private:
  static DType products() {  // for the whole test
    const bool narrow = GetParam().narrow_products && ops::has_bfloat16_products();
    ops::choose_products(narrow ? Products::bfloat16 : Products::float32);
    return ops::compute_dtype(GetParam().tensors);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, WeightBytes,
                         ::testing::Values(Types{DType::float32, false},
                                           Types{DType::bfloat16, false},
                                           Types{DType::bfloat16, true}),
                         [](const auto& type) {
                           return std::string(name_of(type.param.tensors)) +
                                  (type.param.narrow_products ? "_products" : "");
                         });

TEST_P(WeightBytes, LayersOfReleasedWidths) {
  const std::pair<std::int64_t, std::int64_t> widths[] = {
      {1152, 1152}, {1152, 2304}, {4608, 1152}, {4096, 12288}, {10240, 4096},
      {1920, 1920}, {512, 11520}, {64, 3072},   {16, 1152},    {1152, 32}};
  for (const auto& [in, out] : widths) {
    const ops::Linear layer(
        ops::WeightRows{in, out, dtype(), [](std::int64_t, std::int64_t, void*, std::int64_t) {}});
    EXPECT_EQ(weight_bytes({{"layer.weight", {out, in}}}, precision_), layer.bytes())
        << in << " to " << out;
  }
  for (const Shape& shape : {Shape{512, 512, 3, 3},
                             {3, 128, 3, 3},
                             {512, 16, 3, 3, 3},
                             {128, 256, 3, 3, 3},
                             {3, 128, 3, 3, 3}}) {
    const ops::Convolution layer(Tensor::zeros(shape, dtype()), Tensor::zeros({shape[0]}, dtype()));
    EXPECT_EQ(weight_bytes({{"layer.weight", shape}, {"layer.bias", {shape[0]}}}, precision_),
              layer.bytes())
        << to_string(shape);
    const ops::Convolution strided(Tensor::zeros(shape, dtype()),
                                   Tensor::zeros({shape[0]}, dtype()), {}, {3, 2, 0, 1});
    EXPECT_EQ(strided.bytes(), layer.bytes()) << to_string(shape) << " with stride 2";
  }
}

TEST_P(WeightBytes, PackedKeysAndValues) {
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
      EXPECT_EQ(
          ops::packed_attention_bytes(keys, channels, products, ops::PackedFor::this_processor),
          blocks * (of_keys + of_values))
          << keys << " keys of " << channels;
    }
  }
}

// Estimates for unknown processors are sufficient for this one, and only slightly larger.
TEST_P(WeightBytes, OnAnyProcessorEnoughForThisOne) {
  const DType products = precision_.products;
  for (const std::int64_t n : {16, 24, 32, 48, 64, 96, 160, 176, 192}) {
    for (const std::int64_t k : {15, 64, 72, 512, 1152, 1920, 4096, 10240}) {
      const auto bytes = [&](ops::PackedFor target) {
        return ops::packed_matrix_bytes(k, n, products, target);
      };
      EXPECT_GE(bytes(ops::PackedFor::any_processor), bytes(ops::PackedFor::this_processor))
          << k << " x " << n;
      EXPECT_GE(bytes(ops::PackedFor::any_processor), k * n * size_of(products));
    }
  }
  for (const Shape& shape : {Shape{512, 512, 3, 3}, {3, 128, 3, 3}, {512, 16, 3, 3, 3}}) {
    const auto bytes = [&](ops::PackedFor target) {
      return ops::packed_convolution_bytes(shape, products, target);
    };
    EXPECT_GE(bytes(ops::PackedFor::any_processor), bytes(ops::PackedFor::this_processor))
        << to_string(shape);
  }
  Precision anywhere = precision_;
  anywhere.packed_for = ops::PackedFor::any_processor;
  T5Config xxl;
  xxl.d_model = 4096;
  xxl.d_ff = 10240;
  xxl.num_layers = 24;
  xxl.num_heads = 64;
  const auto here = double(weight_bytes(t5_tensors(xxl), precision_));
  const auto there = double(weight_bytes(t5_tensors(xxl), anywhere));
  EXPECT_GE(there, here);
  EXPECT_LT(there, 1.03 * here);
}

// oneDNN cannot be queried for types that this processor does not compute products in.
TEST(PackedSizes, AreTheLargestForUnsupportedTypes) {
  if (ops::compute_dtype(DType::bfloat16) == DType::bfloat16) GTEST_SKIP() << "it is, here";
  for (const std::int64_t n : {64, 192}) {
    const auto bytes = [&](ops::PackedFor target) {
      return ops::packed_matrix_bytes(10240, n, DType::bfloat16, target);
    };
    EXPECT_EQ(bytes(ops::PackedFor::this_processor), bytes(ops::PackedFor::any_processor));
  }
  // 64 columns may be packed as two blocks of 48.
  EXPECT_EQ(ops::packed_matrix_bytes(10240, 64, DType::bfloat16, ops::PackedFor::any_processor),
            10240 * 96 * 2);
}

TEST_P(WeightBytes, AttentionWithinFramesAndAlongTime) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer has all blocks";
#endif
  // (sequences, tokens per sequence, batch) for 16 frames of 16 x 16 tokens and 2 branches.
  for (const auto& [sequences, tokens, batch] :
       std::vector<std::array<std::int64_t, 3>>{{16, 256, 2}, {1, 16, 512}}) {
    const Tensor q = Tensor::zeros({sequences * tokens, batch, 16, 72}, dtype());
    const Tensor kv = Tensor::zeros({sequences * tokens, batch, 2, 16, 72}, dtype());
    const auto needed = [](const auto& work) {
      release_free_memory();
      const std::int64_t before = host_memory_now().range;
      work();
      return host_memory_now().range - before;  // the range keeps its peak size
    };
    const std::int64_t pairs = sequences * batch * 16;
    expect_close(attention_bytes({tokens, tokens, pairs, 72}, precision_), needed([&] {
                   ops::Attention attention(q, 0.125F, sequences);
                   attention.add(kv);
                   (void)attention.finish();
                 }));
    expect_close(attention_bytes({tokens, tokens, pairs, 72, true}, precision_),
                 needed([&] { (void)ops::attend(q, kv, 0.125F, sequences); }));
  }
}

// An image, and clips of one, two and three batches.
TEST_P(WeightBytes, EncodingAClip) {
  const test::Reference r("rotary");
  const CogVideoXEncoder encoder(Checkpoint::open(r.folder / "vae", "diffusion_pytorch_model"),
                                 r.vae, dtype());
  const auto sum = [](const auto& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  };
  for (const std::int64_t frames : {1, 13, 17, 24}) {
    const Shape latents{encoded_frames(frames), 9, 8}, shape{frames, 72, 64, 3};
    forget_memory_peaks();
    const std::int64_t before = sum(memory_by_purpose(false).present);
    const Sharded pixels{Tensor::zeros(shape, DType::uint8), Layout::cut(shape, 0, 1),
                         test::world()};
    encoder.sample(pixels, Layout::cut(latents, 0, 1), 1,
                   [](std::span<float> noise) { std::ranges::fill(noise, 0.0F); });
    const std::int64_t found = sum(memory_by_purpose(false).at_peak) - before;
    const std::int64_t said = cogvideox_encode_bytes(r.vae, latents, frames, precision_);
    EXPECT_NEAR(double(said), double(found), 0.005 * double(found)) << frames << " frames";
  }
}

TEST_P(WeightBytes, CogVideoX) {
  for (const char* kind : {"sincos", "rotary", "v1_5", "i2v", "i2v_1_5"}) {
    const test::Reference r(kind);
    const auto open = [&](const char* part, const char* stem) {
      return Checkpoint::open(r.folder / part, stem);
    };
    const T5Layers t5(open("text_encoder", "model"), r.t5, {0, r.t5.num_layers, true, true},
                      dtype());
    expect_close(weight_bytes(t5_tensors(r.t5), precision_), t5.bytes());
    const CogVideoXTransformer transformer(open("transformer", "diffusion_pytorch_model"),
                                           r.transformer, dtype());
    expect_close(weight_bytes(cogvideox_layer_tensors(r.transformer), precision_),
                 transformer.bytes());
    const CogVideoXDecoder decoder(open("vae", "diffusion_pytorch_model"), r.vae, dtype());
    expect_close(weight_bytes(cogvideox_decoder_tensors(r.vae), precision_), decoder.bytes());
    const CogVideoXEncoder encoder(open("vae", "diffusion_pytorch_model"), r.vae, dtype());
    expect_close(weight_bytes(cogvideox_encoder_tensors(r.vae), precision_), encoder.bytes());
  }
}

TEST_P(WeightBytes, OpenSora) {
  for (const char* kind : {"v1_0", "v1_2"}) {
    const test::OpenSoraReference r(kind);
    const STDiT transformer(Checkpoint::open(r.folder / "transformer", "diffusion_pytorch_model"),
                            r.transformer, dtype());
    expect_close(weight_bytes(stdit_tensors(r.transformer), precision_), transformer.bytes());
    const auto vae = OpenSoraVaeConfig::read(Config::read(r.folder / "vae" / "config.json"));
    const OpenSoraDecoder decoder(Checkpoint::open(r.folder / "vae", "diffusion_pytorch_model"),
                                  vae, dtype());
    expect_close(weight_bytes(open_sora_decoder_tensors(vae), precision_), decoder.bytes());
  }
}

TEST(Working, FollowsTheSharesOfARank) {
  const Precision bf16{DType::bfloat16, DType::bfloat16};
  const Precision in_float32{DType::bfloat16, DType::float32};
  const STDiTSizes whole{2, 120, {16, 256}, {16, 256}, 256, 0, true};
  const STDiTSizes half{2, 120, {8, 256}, {16, 128}, 256, 0, false};
  const std::int64_t all = stdit_working_bytes({}, whole, bf16);
  EXPECT_LT(stdit_working_bytes({}, half, bf16), all);
  EXPECT_GT(2 * stdit_working_bytes({}, half, bf16), all);
  EXPECT_GT(stdit_working_bytes({}, whole, in_float32), all);
  const std::int64_t image = open_sora_decode_bytes({}, {16, 32, 32, 1024}, bf16);
  EXPECT_LT(open_sora_decode_bytes({}, {16, 16, 32, 1024}, bf16), image);
  EXPECT_LT(open_sora_decode_bytes({}, {8, 32, 32, 1024}, bf16), image);
  CogVideoXConfig from_text, from_image;
  from_image.in_channels *= 2;
  const CogVideoXSizes part{.batch = 2,
                            .text_tokens = 226,
                            .video_tokens = 4000,
                            .row_tokens = 4226,
                            .heads = 30,
                            .all_tokens = 4226};
  const auto bytes = [&](const CogVideoXConfig& c) {
    return cogvideox_working_bytes(c, part, bf16);
  };
  // Patches of 64 features: of the image, for each item, and more of the model's input.
  EXPECT_EQ(bytes(from_image) - bytes(from_text), (2 + 1) * 64 * 4000 * 2);
  from_image.learned_positions = true;
  EXPECT_EQ(bytes(from_image) - bytes(from_text), (2 + 1) * 64 * 4000 * 2 + 4226 * 1920 * 2);
  const std::int64_t film = cogvideox_decode_bytes({}, {13, 60, 90}, bf16);
  EXPECT_LT(cogvideox_decode_bytes({}, {3, 60, 90}, bf16), film);
  EXPECT_LT(cogvideox_decode_bytes({}, {13, 30, 90}, bf16), film);
  // Longer clips need more only for their pixels and samples.
  const std::int64_t clip = cogvideox_encode_bytes({}, {13, 60, 90}, 49, bf16);
  EXPECT_LT(cogvideox_encode_bytes({}, {1, 60, 90}, 1, bf16), clip);
  EXPECT_LT(cogvideox_encode_bytes({}, {13, 30, 90}, 49, bf16), clip);
  EXPECT_EQ(cogvideox_encode_bytes({}, {25, 60, 90}, 97, bf16) - clip,
            48 * 480 * 720 * 3 + 12 * 60 * 90 * 16 * 4);
}

}  // namespace
}  // namespace reelmesh

#pragma once
// Compares what a dry run counts with what the same code takes.
#include "job/denoise.hpp"
#include "models/cogvideox/decoder.hpp"
#include "models/cogvideox/encoder.hpp"
#include "models/cogvideox/transformer.hpp"
#include "models/common/experts.hpp"
#include "models/opensora/transformer.hpp"
#include "models/reference.hpp"
#include "models/wan/transformer.hpp"
#include "support/dry_workloads.hpp"
#include "support/ranks.hpp"
#include "tensor/ledger.hpp"

namespace reelmesh::test {

struct Taken {
  std::int64_t weights = 0;
  std::int64_t working = 0;  ///< peak beside the weights, without holes
  std::int64_t flops = 0, memory_bytes = 0;
};

/// make(checkpoint) → a model; use(model, group, device) runs it with inputs that it makes itself,
/// on `device` or device.host().
template <class Make, class Use>
Taken taken_by_dry_run(const Precision& precision, const Make& make, const Use& use) {
  Ledger ledger(precision);
  const DryRun run(ledger);
  const auto model = make(Checkpoint::of_shapes().on(precision.device()));
  Taken taken{.weights = ledger.present()};
  ledger.release();
  const std::int64_t flops = ledger.counted().flops, bytes = ledger.counted().memory_bytes;
  use(model, comm::Group::pretended(0, 1), precision.device());
  taken.working = ledger.peak_in_use() - taken.weights;
  taken.flops = ledger.counted().flops - flops;
  taken.memory_bytes = ledger.counted().memory_bytes - bytes;
  return taken;
}

// What the stages of the pipeline do with the parts of a model, on one rank.

inline auto encode_text(std::int64_t tokens) {
  return [tokens](const T5Layers& layers, const comm::Group&, Device) {
    layers(layers.embed(std::vector<std::int32_t>(std::size_t(tokens), 3)));
    // So that the position bias is made again in a second call.
    layers(layers.embed(std::vector<std::int32_t>(1, 3)));
  };
}

inline auto denoise(const CogVideoXConfig& c, std::int64_t text_tokens) {
  return [c, text_tokens](const CogVideoXTransformer& transformer, const comm::Group& group,
                          Device device) {
    const Shape tokens = c.sample_tokens();
    const CogVideoXPlacement placement(transformer, group, Layout::cut(tokens, 0, 1),
                                       Layout::cut({text_tokens}, 0, 1), 2);
    const auto latents = [&](std::int64_t channels) {
      return Tensor::zeros({tokens[0] * c.patch.frames, channels, tokens[1] * c.patch.rows,
                            tokens[2] * c.patch.columns},
                           DType::float32, device);
    };
    const Tensor noise = latents(c.latent_channels());
    const Tensor context =
        Tensor::zeros({text_tokens, 2, c.text_channels}, transformer.dtype(), device);
    std::vector<Tensor> images;
    if (c.takes_image()) images.push_back(transformer.patches(latents(c.image_channels())));
    transformer(placement, {&noise, 1}, context, std::int64_t{500}, images);
  };
}

/// frame_0: whether its tokens have a timestep of their own.
inline auto denoise(const WanConfig& c, bool frame_0 = false) {
  return [c, frame_0](const WanTransformer& transformer, const comm::Group& group, Device device) {
    const std::int64_t rows =
        c.vision_channels > 0 ? std::max<std::int64_t>(c.vision_positions, 5) : 0;
    const WanPlacement placement(transformer, group, Layout::cut({5, 3, 4}, 0, 1), 2, 1, rows);
    const auto zeros = [&](const Shape& shape) {
      return Tensor::zeros(shape, transformer.dtype(), device);
    };
    const auto latents = [&](std::int64_t channels) {
      return Tensor::zeros({5, channels, 3 * c.patch.rows, 4 * c.patch.columns}, DType::float32,
                           device);
    };
    const Tensor noise = latents(c.out_channels);
    std::vector<Tensor> images;
    if (c.takes_image()) images.push_back(latents(c.image_channels()));
    transformer(
        placement, {&noise, 1},
        transformer.encode_context(zeros({9, 2, c.text_channels}),
                                   rows > 0 ? zeros({rows, 2, c.vision_channels}) : Tensor()),
        transformer.embed(500), images, Blocks::compute, {},
        frame_0 ? transformer.embed(0) : Tensor());
  };
}

/// One step of each of two experts, of which only one is in memory at a time.
inline auto denoise_in_turn(const WanConfig& c, DType dtype) {
  return [c, dtype](const std::unique_ptr<const Experts>& model, const comm::Group& group,
                    Device device) {
    constexpr std::int64_t tokens = 9;
    Batch batch{
        dry_clip({5, 3 * c.patch.rows, 4 * c.patch.columns}, c.in_channels, 17, 2, 2, tokens)};
    batch.front().record.settings.seed = 1;
    batch.front().sampling.sampler =
        std::make_shared<const StillSampler>(std::vector<double>{900, 100});
    DenoiseLayout layout;
    layout.mesh = {1, 1, 1};
    layout.tokens = Layout::replicated({5, 3, 4}, 1);
    layout.latents = Layout::replicated(batch.front().latents, 1);
    layout.text = Layout::replicated({tokens}, 1);
    const Conditioning conditioning{
        Tensor::zeros({tokens, 2, c.text_channels}, dtype, device.host()), {}};
    Denoising denoising(group, layout, batch, {&conditioning, 1}, *model);
    while (!denoising.finished()) denoising.step_together();
  };
}

/// Made so, with expert 0 in memory. weights: of both.
inline auto experts_in_turn(const WanConfig& c, DType dtype) {
  return [c, dtype](const Checkpoint& weights) {
    auto model = std::make_unique<const Experts>(
        weights.device(), 500, true, [=](int) -> std::unique_ptr<const Denoiser> {
          return std::make_unique<WanTransformer>(weights, c, dtype);
        });
    model->use_together(0);
    return model;
  };
}

inline auto denoise(const STDiTConfig& c, std::int64_t text_tokens, std::int64_t clips) {
  return [c, text_tokens, clips](const STDiT& transformer, const comm::Group& group,
                                 Device device) {
    const STDiTClip clip{{4, 8, 4}, 64, 32, 8};
    const Tensor text = Tensor::zeros({text_tokens, c.text_channels}, transformer.dtype(), device);
    const STDiTPlacement placement(transformer, group,
                                   SpaceTime(clip.tokens(c.patch), 1, 1, c.heads), clip, clips);
    const std::vector<Tensor> latents(
        std::size_t(clips), Tensor::zeros({4, c.in_channels, 8, 4}, DType::float32, device));
    std::vector<STDiTContext> texts;
    for (std::int64_t i = 0; i < clips; ++i) texts.push_back(transformer.encode_context(text));
    transformer(placement, latents, texts, 500);
  };
}

/// latents: [frame, channel, row, column].
inline auto decode(const Shape& latents, const DecodeLayout& layout) {
  return [=](const Decoder& decoder, const comm::Group& group, Device device) {
    decoder.pixels(
        {Tensor::zeros(latents, DType::float32, device.host()), Layout::cut(latents, 0, 1), group},
        layout);
  };
}

/// latents: [frame, row, column] of the encoder, side × side pixels each.
inline auto encode(std::int64_t frames, const Shape& latents, std::int64_t side = 8) {
  return [=](const Encoder& encoder, const comm::Group& group, Device device) {
    const Shape shape{frames, side * latents.at(1), side * latents.at(2), 3};
    encoder.sample(
        {Tensor::zeros(shape, DType::uint8, device.host()), Layout::cut(shape, 0, 1), group},
        Layout::cut(latents, 0, 1), 1,
        [](std::span<float> noise) { std::ranges::fill(noise, 0.0F); });
  };
}

}  // namespace reelmesh::test

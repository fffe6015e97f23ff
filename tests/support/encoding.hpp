#pragma once
// Encoding of whole clips by a group of ranks, for tests that compare layouts or devices.
#include "layout/relayout.hpp"
#include "models/autoencoder/encoder.hpp"
#include "models/cogvideox/encoder.hpp"
#include "models/wan/encoder.hpp"
#include "support/data_folder.hpp"
#include "support/random_tensor.hpp"
#include "support/spread.hpp"

namespace reelmesh::test {

/// A checkpoint of tests/data that has an encoder; its name is the part of a test's name.
struct EncoderKind {
  const char *family, *kind;
  std::string name() const { return fmt::format("{}_{}", family, kind); }
  std::filesystem::path folder() const { return data_folder() / family / kind / "vae"; }
};

struct OpenedEncoder {
  std::optional<OpenSoraVaeConfig> opensora;
  std::unique_ptr<const GaussianEncoder> encoder;
  std::int64_t channels = 0;  ///< of latents
  double scale = 1;           ///< latents are multiplied by it
  std::int64_t side = 8;      ///< pixels of a latent along rows and columns
};

inline OpenedEncoder open_encoder(const EncoderKind& kind, DType dtype, Device device = {}) {
  const Config config = Config::read(kind.folder() / "config.json");
  const Checkpoint weights = Checkpoint::open(kind.folder(), "diffusion_pytorch_model").on(device);
  if (kind.family == std::string("opensora")) {
    const auto vae = OpenSoraVaeConfig::read(config);
    return {vae, std::make_unique<OpenSoraEncoder>(weights, vae, dtype), vae.image.latent_channels,
            vae.latent_factor()};
  }
  if (kind.family == std::string("wan")) {
    const auto vae = WanVaeConfig::read(config);
    return {{},
            std::make_unique<WanEncoder>(weights, vae, dtype),
            vae.latent_channels,
            1,
            vae.pixels_per_latent()};
  }
  const auto vae = CogVideoXVaeConfig::read(config);
  return {{},
          std::make_unique<CogVideoXEncoder>(weights, vae, dtype),
          vae.latent_channels,
          vae.inverts_scale ? 1 / vae.scaling_factor : vae.scaling_factor};
}

/// uint8 [frame, row, column, 3]: a gradient that moves, with noise, as in
/// tools/reference/make_cogvideox_encoder_data.py.
inline Tensor encoder_pixels(std::int64_t frames, std::int64_t rows, std::int64_t columns) {
  Tensor pixels = Tensor::empty({frames, rows, columns, 3}, DType::uint8);
  std::uint32_t number = 0;
  for (std::uint8_t& pixel : pixels.span<std::uint8_t>()) {
    const std::uint32_t noise = number * 2654435761U >> 26U, position = number++ / 3;
    const auto width = std::uint32_t(columns), height = std::uint32_t(rows);
    pixel = std::uint8_t(position / width % height * 2 + position % width * 3 +
                         position / width / height * 9 + (number - 1) % 3 * 60 + noise);
  }
  return pixels;
}

/// Moments of the posterior, float32 [frame, channel, row, column], a sample, and the posterior.
struct Encoded {
  Tensor moments, sample, mean, deviation;
};

/// Encodes a clip to latents with this layout [frame, row, column]; → whole, on every rank. noise:
/// float32 [frame, channel, row, column].
inline Encoded encoded(const GaussianEncoder& encoder, const Tensor& pixels, const Layout& latents,
                       const comm::Group& group, double scale, const Tensor& noise) {
  const auto assembled = [&](const Tensor& local, const Layout& layout) {
    return gathered({local, layout, group});
  };
  const std::int64_t channels = noise.shape(1);
  const Layout frames = encoder.frames_of(latents, pixels.shape(0));
  const std::int64_t side = pixels.shape(1) / frames.global()[1];
  const Sharded mine =
      spread(pixels, frames.scaled(1, side).scaled(2, side).with_axis(3, 3), group);
  const Layout moments = latents.with_axis(1, 2 * channels);
  const Layout samples = latents.with_axis(1, channels);
  Tensor local = Tensor::empty(own_box(moments, group).extent, DType::float32);
  encoder.encode(mine, latents, [&](std::int64_t first, const Tensor& batch) {
    const Tensor values = batch.on({}).to(DType::float32);
    const std::int64_t area = local.shape(2) * local.shape(3);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const std::int64_t c = i % (2 * channels), at = i / (2 * channels);
      local.data<float>()[((first + at / area) * 2 * channels + c) * area + at % area] =
          values.data<float>()[i];
    }
  });
  const Tensor sample = encoder.sample(mine, latents, scale, [&](std::span<float> box) {
    std::ranges::copy(spread(noise, samples, group).local.span<float>(), box.begin());
  });
  const Encoder::Posterior posterior = encoder.posterior(mine, latents);
  return {assembled(local, moments), assembled(sample, samples), assembled(posterior.mean, samples),
          assembled(posterior.deviation, samples)};
}

/// Whether both have the same bits.
inline bool same_bits(const Encoded& a, const Encoded& b) {
  return same_bits(a.moments, b.moments) && same_bits(a.sample, b.sample) &&
         same_bits(a.mean, b.mean) && same_bits(a.deviation, b.deviation);
}

}  // namespace reelmesh::test

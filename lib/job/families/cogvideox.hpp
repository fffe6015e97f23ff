#pragma once
#include "job/family.hpp"
#include "models/cogvideox/folder.hpp"
#include "models/cogvideox/step_cache.hpp"

namespace reelmesh {

/// The workload of `together` clips that are denoised together. latents: [frame, row, column] that
/// are denoised; the first `dropped_frames` of them are not decoded. branches: CFG, per clip.
ClipWorkload cogvideox_workload(const CogVideoXConfig& config, const CogVideoXVaeConfig& vae,
                                const Shape& latents, std::int64_t dropped_frames,
                                std::int64_t branches, std::int64_t text_tokens,
                                std::int64_t together, const Precision& precision);

/// CogVideoX 2b, 5b and 1.5.
class CogVideoX final : public Family {
 public:
  explicit CogVideoX(const ModelPaths& paths) : folder_(CogVideoXFolder::open(paths)) {}

  const ModelPaths& paths() const override { return folder_.paths; }
  void check_weights(bool encodes_video) const override { folder_.check_weights(encodes_video); }
  const T5Config& text_encoder() const override { return folder_.text_encoder; }
  ClipWorkload workload(const Clip& clip, std::int64_t text_tokens, std::int64_t together,
                        const Precision& precision) const override;
  std::unique_ptr<const Denoiser> denoiser(DType dtype, Device device, const Numerics& numerics,
                                           const WeightPlacement& placement) const override;
  std::unique_ptr<const Decoder> decoder(DType dtype, Device device,
                                         const Numerics& numerics) const override;
  std::unique_ptr<const Encoder> encoder(DType dtype, Device device,
                                         const Numerics& numerics) const override;

 private:
  bool takes(InputKind kind) const override;
  void set_encoding(Clip& clip, const Job& job) const;
  ClipDefaults defaults() const override;
  std::optional<CacheCoefficients> cache_coefficients() const override {
    return known_cache_coefficients(folder_.transformer);
  }
  std::vector<double> step_distances(const Clip& clip) const override;
  void complete(Clip& clip, const Job& job, const ClipRequest& request,
                const Tokenizer& tokenizer) const override;

  struct Sampling {
    std::shared_ptr<const Sampler> sampler;
    NoiseLevel first_noise;  // of clips that begin from a video
  };
  CogVideoXFolder folder_;
  // By timesteps.
  mutable Shared<std::vector<std::int64_t>, std::vector<double>> distances_;
  // By sampler, steps, skipped steps and type.
  mutable Shared<std::tuple<SamplerKind, int, int, DType>, Sampling> samplings_;
};

}  // namespace reelmesh

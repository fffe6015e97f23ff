#pragma once
#include "job/family.hpp"
#include "models/checkpoints/survey.hpp"
#include "models/cogvideox/folder.hpp"
#include "models/cogvideox/step_cache.hpp"

namespace reelmesh {

/// CogVideoX 2b, 5b and 1.5.
class CogVideoX final : public Family {
 public:
  explicit CogVideoX(const ModelPaths& paths) : folder_(CogVideoXFolder::open(paths)) {}
  explicit CogVideoX(CogVideoXFolder folder) : folder_(std::move(folder)) {}

  const char* name() const override { return "cogvideox"; }
  const ModelPaths& paths() const override { return folder_.paths; }
  std::vector<std::string> unused_contents() const override { return unused_contents_of(paths()); }
  const T5Config& text_encoder() const override { return folder_.text_encoder; }
  ClipWorkload workload(const Clip& clip, std::int64_t text_tokens) const override;
  std::vector<std::int64_t> share(const DenoiseLayout& layout, int rank) const override;
  std::int64_t layers() const override { return folder_.transformer.layers; }
  std::unique_ptr<const Denoiser> denoiser(const OpenPart& open, DType dtype,
                                           const WeightPlacement& placement,
                                           std::int64_t layers) const override;
  std::unique_ptr<const Decoder> decoder(const Checkpoint& weights, DType dtype) const override;
  std::unique_ptr<const Encoder> encoder(const Checkpoint& weights, DType dtype) const override;
  std::unique_ptr<Trainable> trainable(const Checkpoint& weights, DType dtype,
                                       const WeightPlacement& placement,
                                       const TrainingMode& mode) const override;
  std::optional<double> image_scale() const override;
  std::int64_t made_frames(std::int64_t frames) const override;
  TrainingNoise training_noise(const Job& job, const VideoSize& size) const override;

 private:
  bool takes(InputKind kind) const override;
  void set_encoding(Clip& clip, const Job& job) const;
  ClipDefaults defaults() const override;
  std::optional<CacheCoefficients> cache_coefficients() const override {
    return known_cache_coefficients(folder_.transformer);
  }
  std::vector<double> step_distances(std::span<const double> timesteps) const override;
  void complete(Clip& clip, const Job& job, const ClipRequest& request,
                const Tokenizer& tokenizer) const override;

  struct Sampling {
    std::shared_ptr<const Sampler> sampler;
    NoiseLevel first_noise;  // of clips that begin from a video
  };
  CogVideoXFolder folder_;
  // By sampler, steps, skipped steps and type.
  mutable Shared<std::tuple<std::string_view, int, int, DType>, Sampling> samplings_;
};

}  // namespace reelmesh

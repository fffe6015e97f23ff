#pragma once
#include "job/family.hpp"
#include "models/checkpoints/survey.hpp"
#include "models/wan/folder.hpp"
#include "models/wan/step_cache.hpp"

namespace reelmesh {

/// Wan 2.1 and 2.2, from texts, images or videos. Each rank has the whole text, and the rows of the
/// image encoder, so that only video tokens are exchanged.
class Wan final : public Family {
 public:
  explicit Wan(const ModelPaths& paths) : folder_(WanFolder::open(paths)) {}
  explicit Wan(WanFolder folder) : folder_(std::move(folder)) {}

  const char* name() const override { return "wan"; }
  const ModelPaths& paths() const override { return folder_.paths; }
  std::vector<std::string> unused_contents() const override { return unused_contents_of(paths()); }
  const T5Config& text_encoder() const override { return folder_.text_encoder; }
  ClipWorkload workload(const Clip& clip, std::int64_t text_tokens) const override;
  std::vector<std::int64_t> share(const DenoiseLayout& layout, int rank) const override;
  std::int64_t layers() const override { return folder_.transformer.layers; }
  int experts() const override { return folder_.boundary ? 2 : 1; }
  int expert(double timestep) const override { return folder_.expert(timestep); }
  std::unique_ptr<const Denoiser> denoiser(const OpenPart& open, DType dtype,
                                           const WeightPlacement& placement,
                                           std::int64_t layers) const override;
  std::unique_ptr<const Decoder> decoder(const Checkpoint& weights, DType dtype) const override;
  std::unique_ptr<const Encoder> encoder(const Checkpoint& weights, DType dtype) const override;
  std::optional<VisionPixels> vision_pixels() const override;
  std::unique_ptr<const VisionEncoder> vision_encoder(const Checkpoint& weights,
                                                      DType dtype) const override;
  std::unique_ptr<Trainable> trainable(const Checkpoint& weights, DType dtype,
                                       const WeightPlacement& placement,
                                       const TrainingMode& mode) const override;
  TrainingNoise training_noise(const Job& job, const VideoSize& size) const override;
  /// As trainers of Wan 2.1 I2V do: the image has no noise and is never left out; mask and latents
  /// of a video of it and grey frames, the mode of the posterior (finetrainers'
  /// WanImageConditioningLatentEncodeProcessor, musubi-tuner's wan_cache_latents.py,
  /// diffusion-pipe's wan.py); CLIP's rows of the frame by the processor of the folder
  /// (finetrainers' WanImageEncodeProcessor), where the other two squash it to a square. The loss
  /// is that of texts, over all frames.
  bool encodes_image_once() const override { return folder_.transformer.takes_image(); }
  std::int64_t made_frames(std::int64_t frames) const override;

 private:
  bool takes(InputKind kind) const override;
  LastImage last_image() const override;
  void set_encoding(Clip& clip, std::int64_t made_frames) const;
  /// Error(usage) for models that have two transformers, or take a last image.
  void require_trainable() const;
  ClipDefaults defaults() const override;
  void check_options(const Job& job) const override;
  bool takes_flow_shift() const override { return true; }
  SamplingRecipe sampling(Clip& clip, const Job& job, const ClipRequest& request) const;
  GuidanceScale guidance(const Clip& clip) const;
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
  WanFolder folder_;
  // By option, settings and steps.
  mutable Shared<std::tuple<std::string_view, FlowSettings, int>, Sampling> samplings_;
};

}  // namespace reelmesh

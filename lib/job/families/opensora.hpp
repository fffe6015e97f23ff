#pragma once
#include "job/family.hpp"
#include "models/checkpoints/survey.hpp"
#include "models/opensora/folder.hpp"

namespace reelmesh {

/// Open-Sora 1.0 (STDiT, IDDPM) and 1.2 (STDiT3, rectified flow). A clip has one text, its prompt;
/// the unconditional branch uses the null caption embedding of the transformer. Prompts are cleaned
/// as in training. The text encoder gets them without padding, which the reference masks.
class OpenSora final : public Family {
 public:
  explicit OpenSora(const ModelPaths& paths) : folder_(OpenSoraFolder::open(paths)) {}
  explicit OpenSora(OpenSoraFolder folder) : folder_(std::move(folder)) {}

  const char* name() const override { return "opensora"; }
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
  std::unique_ptr<Trainable> trainable(const Checkpoint& weights, DType dtype,
                                       const WeightPlacement& placement,
                                       const TrainingMode& mode) const override;
  TrainingNoise training_noise(const Job& job, const VideoSize& size) const override;
  /// Its latents are to be multiplied by OpenSoraVaeConfig::latent_factor().
  std::unique_ptr<const Encoder> encoder(const Checkpoint& weights, DType dtype) const override;

 private:
  ClipDefaults defaults() const override;
  void check_options(const Job& job) const override;
  bool distances_depend_on_values() const override { return true; }
  std::optional<CacheCoefficients> cache_coefficients() const override;
  void complete(Clip& clip, const Job& job, const ClipRequest& request,
                const Tokenizer& tokenizer) const override;
  SamplingRecipe sampling(const Clip& clip, const Job& job) const;

  OpenSoraFolder folder_;
  // By steps, height, width and frames.
  mutable Shared<std::tuple<int, std::int64_t, std::int64_t, std::int64_t>,
                 std::shared_ptr<const Sampler>>
      samplers_;
};

}  // namespace reelmesh

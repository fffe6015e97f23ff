#pragma once
#include "job/family.hpp"
#include "models/opensora/folder.hpp"

namespace reelmesh {

/// The workload of `together` clips that are denoised together. latents: [frame, row, column];
/// frames: of the video.
ClipWorkload opensora_workload(const STDiTConfig& config, const OpenSoraVaeConfig& vae,
                               const Shape& latents, std::int64_t frames, std::int64_t text_tokens,
                               std::int64_t together, const Precision& precision);

/// Open-Sora 1.0 (STDiT, IDDPM) and 1.2 (STDiT3, rectified flow). A clip has one text, its prompt;
/// the unconditional branch uses the null caption embedding of the transformer. Prompts are cleaned
/// as in training. The text encoder gets them without padding, which the reference masks.
class OpenSora final : public Family {
 public:
  explicit OpenSora(const ModelPaths& paths) : folder_(OpenSoraFolder::open(paths)) {}

  const ModelPaths& paths() const override { return folder_.paths; }
  void check_weights(bool /*encodes_video*/) const override { folder_.check_weights(); }
  const T5Config& text_encoder() const override { return folder_.text_encoder; }
  ClipWorkload workload(const Clip& clip, std::int64_t text_tokens, std::int64_t together,
                        const Precision& precision) const override;
  std::unique_ptr<const Denoiser> denoiser(DType dtype, Device device, const Numerics& numerics,
                                           const WeightPlacement& placement) const override;
  std::unique_ptr<const Decoder> decoder(DType dtype, Device device,
                                         const Numerics& numerics) const override;

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

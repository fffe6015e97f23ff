#pragma once
// Workloads of models that have configurations and no files.
#include <memory>
#include <vector>

#include "forecast/dry_runs.hpp"
#include "job/families/cogvideox.hpp"
#include "job/families/opensora.hpp"
#include "job/families/wan.hpp"
#include "models/cogvideox/decoder.hpp"

namespace reelmesh::test {

inline CogVideoXFolder cogvideox_folder(const CogVideoXConfig& transformer,
                                        const CogVideoXVaeConfig& vae = {},
                                        const T5Config& text_encoder = {}) {
  CogVideoXFolder folder;
  folder.transformer = transformer;
  folder.vae = vae;
  folder.text_encoder = text_encoder;
  return folder;
}

/// Stable Diffusion's autoencoder, which release 1.0 uses.
inline OpenSoraVaeConfig released_vae() {
  OpenSoraVaeConfig vae;
  vae.image.block_channels = {128, 256, 512, 512};
  vae.image.layers_per_block = 2;
  return vae;
}

inline OpenSoraFolder opensora_folder(const STDiTConfig& transformer,
                                      const OpenSoraVaeConfig& vae = released_vae(),
                                      const T5Config& text_encoder = {}) {
  OpenSoraFolder folder;
  folder.transformer = transformer;
  folder.vae = vae;
  folder.text_encoder = text_encoder;
  return folder;
}

inline WanFolder wan_folder(const WanConfig& transformer, const WanVaeConfig& vae = {},
                            const T5Config& text_encoder = {}) {
  WanFolder folder;
  folder.transformer = transformer;
  folder.vae = vae;
  folder.text_encoder = text_encoder;
  return folder;
}

/// A sampler of any predictions at these timesteps, which changes nothing.
class StillSampler final : public Sampler {
 public:
  explicit StillSampler(std::vector<double> timesteps) : timesteps_(std::move(timesteps)) {}
  int calls() const override { return int(timesteps_.size()); }
  double timestep(int i) const override { return timesteps_.at(std::size_t(i)); }
  void step(int, const Tensor&, Tensor&, std::vector<Tensor>&, const DrawNoise&) const override {}
  CleanFactors clean_factors(int) const override { return {}; }

 private:
  std::vector<double> timesteps_;
};

/// A clip of these latents [frame, row, column], with what a dry run looks at. texts: of `tokens`
/// tokens each.
inline Clip dry_clip(const Shape& latents, std::int64_t latent_channels, std::int64_t frames,
                     std::int64_t branches, std::int64_t texts, std::int64_t tokens) {
  Clip clip;
  clip.record.settings.fps = 8;
  clip.record.settings.steps = 1;
  clip.latents = latents;
  clip.latent_channels = latent_channels;
  clip.format.size = {8 * latents.at(1), 8 * latents.at(2), frames};
  clip.format.branches = branches;
  clip.video = {frames, 8 * latents[1], 8 * latents[2]};
  clip.texts.resize(std::size_t(texts), std::vector<std::int32_t>(std::size_t(tokens)));
  clip.sampling.sampler = std::make_shared<const StillSampler>(std::vector<double>{0});
  return clip;
}

inline Clip cogvideox_clip(const CogVideoXConfig& config, const Shape& latents,
                           std::int64_t branches, std::int64_t tokens) {
  return dry_clip(latents, config.latent_channels(), decoded_frames(latents.at(0)), branches,
                  branches, tokens);
}

/// Families live as long as the process, since workloads refer to them. (Of a reference, GCC 14
/// would warn that it may be one to the folder.)
template <class F, class Folder>
const Family* family_of(Folder folder) {
  static std::vector<std::unique_ptr<const Family>> families;
  return families.emplace_back(std::make_unique<F>(std::move(folder))).get();
}

/// The workload of `together` such clips.
inline Workload dry_workload(const Family& family, const Clip& clip, std::int64_t together,
                             const Precision& precision) {
  const auto runs = DryRuns::of(family, precision, {}, false, {});
  Workload workload;
  workload.text = runs->text_workload(clip.tokens());
  workload.costs = runs;
  workload.sizes.push_back(family.workload(clip, clip.tokens()));
  runs->complete(workload.sizes.back(), clip, together);
  return workload;
}

}  // namespace reelmesh::test

#pragma once
// Denoising and decoding of Open-Sora's clips.
#include <optional>

#include "models/autoencoder/decoder.hpp"
#include "models/opensora/folder.hpp"
#include "models/opensora/transformer.hpp"
#include "pipeline/family.hpp"
#include "plan/space_time.hpp"

namespace reelmesh::pipeline {

/// The clip as the transformer sees it.
STDiTClip stdit_clip(const Clip& clip);

/// The sampler of clips of one size on one rank, whichever the checkpoint asks for, with its
/// guidance.
class OpenSoraSampler {
 public:
  /// Error(usage) for a number of steps that the scheduler cannot make.
  OpenSoraSampler(const OpenSoraFolder& model, int steps, const VideoSize& size);

  int calls() const;
  double timestep(int i) const;  ///< what the model is called with
  /// x: box of the latents after i steps, float32 [frame, channel, row, column], replaced by that
  /// after i + 1. uncond, cond: predictions for it; cond is overwritten. draw: fills a box with the
  /// next noise of a step.
  void step(int i, double guidance, const Tensor& uncond, const Tensor& cond, const Tensor& x,
            const Iddpm::DrawNoise& draw) const;

 private:
  std::int64_t guided_channels_ = 0;
  std::variant<std::monostate, Iddpm, RectifiedFlow> sampler_;
};

class OpenSoraDenoise final : public DenoiseStage {
 public:
  OpenSoraDenoise(const comm::Group& world, const Plan& plan, const OpenSoraFolder& model,
                  DType dtype);
  void release() override { transformer_.reset(); }
  /// Every rank needs all of the text: cross-attention is local.
  Layout context_layout(const Clip& clip, std::size_t place) const override;
  std::vector<Sharded> operator()(const Batch& batch, std::size_t place,
                                  const std::vector<Sharded>& contexts,
                                  const std::function<void()>& step) const override;

 private:
  void read_weights(Device device) override;

  std::vector<Tensor> sample(const Batch& batch, const comm::Group& group, const SpaceTime& layouts,
                             const Layout& boxes, const std::vector<Sharded>& contexts,
                             const std::function<void()>& step) const;

  const OpenSoraFolder& model_;
  DType dtype_;
  std::optional<STDiT> transformer_;
};

class OpenSoraDecode final : public DecodeStage {
 public:
  OpenSoraDecode(const comm::Group& world, const Plan& plan, const OpenSoraFolder& model,
                 DType dtype);
  void release() override { decoder_.reset(); }
  Layout latents(const Shape& global) const override;
  Sharded operator()(const Clip& clip, const Sharded& latents) const override;

 private:
  void read_weights(Device device) override;

  std::vector<double> speeds_;
  const OpenSoraFolder& model_;
  DType dtype_;
  std::optional<OpenSoraDecoder> decoder_;
};

}  // namespace reelmesh::pipeline

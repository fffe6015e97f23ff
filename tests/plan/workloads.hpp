#pragma once
// Workloads of released models: sizes only, no files.
#include <functional>

#include "plan/denoise.hpp"
#include "plan/machine.hpp"

namespace reelmesh::test {

/// Costs by formulas: so the plan is tested without a model. Each may be replaced.
struct ToyCosts final : Costs {
  std::function<StageCost(const DeviceMap::Stage&)> of_text = [](const DeviceMap::Stage&) {
    return StageMemory{};
  };
  std::function<DenoiseCost(const DenoiseLayout&, int rank)> of_denoising = [](const DenoiseLayout&,
                                                                               int) {
    return DenoiseCost{{}, {.flops = 1e12, .sent_bytes = 0}};
  };
  WholeStep of_whole_step;
  std::function<StageCost(const DecodeLayout&, int rank)> of_decoding =
      [](const DecodeLayout&, int) { return StageMemory{}; };
  std::function<StageCost(const DecodeLayout&, int rank)> of_encoding = of_decoding;

  StageCost text(const DeviceMap::Stage& layers) override { return of_text(layers); }
  DenoiseCost denoise(std::size_t, const DenoiseLayout& layout, int rank, const Replica&) override {
    return of_denoising(layout, rank);
  }
  WholeStep whole_step(std::size_t) override { return of_whole_step; }
  StageCost decode(std::size_t, const DecodeLayout& layout, int rank) override {
    return of_decoding(layout, rank);
  }
  StageCost encode(std::size_t, const DecodeLayout& layout, int rank) override {
    return of_encoding(layout, rank);
  }
  double message_seconds(int, std::int64_t, std::int64_t) override { return 0; }
  std::int64_t sent_weights(const RankWeights&, int, int) override { return 0; }
};

inline ToyCosts& toy_costs(const Workload& workload) {
  return dynamic_cast<ToyCosts&>(*workload.costs);
}

/// With the FLOPs of a transformer in which all tokens attend to one another.
inline DenoiseWorkload priced(DenoiseWorkload w, std::int64_t mlp_channels) {
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  const double tokens = number(numel(w.tokens()) + w.text_tokens);
  const double channels = number(w.heads * w.head_channels);
  const double branches = number(w.layers * w.branches);
  const auto costs = std::make_shared<ToyCosts>();
  costs->of_whole_step = {
      4 * branches * channels * tokens * tokens,
      branches * tokens * 2 * channels * (4 * channels + 2 * number(mlp_channels))};
  w.costs = costs;
  return w;
}

/// CogVideoX-2b, 49 frames of 480 x 720: 13 x 30 x 45 tokens, 30 heads. Other systems stop at rank
/// counts that divide neither.
inline DenoiseWorkload cogvideox_2b(std::int64_t branches = 2) {
  DenoiseWorkload w;
  w.latents = {13, 60, 90};
  w.patch = {1, 2, 2};
  w.predicted_channels = 16;
  w.text_tokens = 226;
  w.branches = branches;
  w.layers = 30;
  w.heads = 30;
  w.head_channels = 64;
  w.element_bytes = 2;
  return priced(w, 4 * 1920);
}

/// Open-Sora 1.0, 16 frames of 256 x 256: 16 x 16 x 16 tokens.
inline DenoiseWorkload stdit_xl() {
  DenoiseWorkload w;
  w.latents = {16, 32, 32};
  w.patch = {1, 2, 2};
  w.predicted_channels = 8;
  w.text_tokens = 120;
  w.branches = 2;
  w.layers = 28;
  w.heads = 16;
  w.head_channels = 72;
  w.element_bytes = 4;
  w.layouts = LayoutKind::frames;
  return priced(w, 4 * 1152);
}

/// A clip with these denoising sizes, whose memory is counted as 0.
inline ClipWorkload clip_workload(DenoiseWorkload denoise) {
  ClipWorkload clip;
  clip.denoise = std::move(denoise);
  clip.decode.latents = clip.denoise.latents;
  clip.decode.frames = clip.decode.group_frames = 4 * clip.denoise.latents[0];
  clip.decode.group_latents = clip.denoise.latents[0];
  return clip;
}

/// T5-XXL in bfloat16.
inline constexpr TextWorkload t5_xxl{
    .layers = 24, .layer_bytes = 385'892'352, .streamed_layer = {}};

/// Of clips of this size.
inline Workload one_size_workload(const DenoiseWorkload& denoise) {
  Workload workload{.costs = denoise.costs, .text = t5_xxl, .sizes = {clip_workload(denoise)}};
  toy_costs(workload).of_text = [](const DeviceMap::Stage& part) {
    return StageMemory{(part.last - part.first) * t5_xxl.layer_bytes, 100 << 20, 0};
  };
  return workload;
}

inline PlanMachine machine_with(int ranks) {
  PlanMachine machine;
  machine.ranks = ranks;
  return machine;
}

}  // namespace reelmesh::test

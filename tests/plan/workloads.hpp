#pragma once
// Workloads of released models: sizes only, no files.
#include "plan/denoise.hpp"
#include "plan/machine.hpp"

namespace reelmesh::test {

/// Costs of a transformer in which all tokens attend to one another over a mesh, by formulas: so
/// the plan is tested without a model.
struct MeshModel {
  std::int64_t mlp_channels = 0;

  static double number(std::int64_t n) { return static_cast<double>(n); }
  double attention(const DenoiseWorkload& w) const {
    const double tokens = number(numel(w.tokens()) + w.text_tokens);
    return 4 * number(w.layers * w.branches * w.heads * w.head_channels) * tokens * tokens;
  }
  double others(const DenoiseWorkload& w) const {
    const double channels = number(w.heads * w.head_channels);
    return number(w.layers * w.branches * (numel(w.tokens()) + w.text_tokens)) * 2 * channels *
           (4 * channels + 2 * number(mlp_channels));
  }
  DenoiseWorkload& complete(DenoiseWorkload& w) const {
    w.layouts = [](const DenoiseWorkload& some, const LayoutRequest& request) {
      return mesh_layouts(some, request);
    };
    // The sizes may be changed after this.
    w.whole_step = [] { return WholeStep{1e12, 1e12}; };
    w.cost = [](const DenoiseLayout&, int, const Replica&) {
      return DenoiseCost{{}, {.flops = 1e12, .sent_bytes = 0}};
    };
    return w;
  }
};

/// The same with its own sizes, for costs.
inline DenoiseWorkload priced(DenoiseWorkload w, std::int64_t mlp_channels) {
  const MeshModel model{mlp_channels};
  w.whole_step = [step = WholeStep{model.attention(w), model.others(w)}] { return step; };
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
  return priced(MeshModel{}.complete(w), 4 * 1920);
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
  MeshModel{}.complete(w);
  w.layouts = frame_layouts;
  return w;
}

/// A clip with these denoising sizes, whose memory is counted as 0.
inline ClipWorkload clip_workload(DenoiseWorkload denoise) {
  ClipWorkload clip;
  clip.denoise = std::move(denoise);
  clip.decode.latents = clip.denoise.latents;
  clip.decode.frames = clip.decode.group_frames = 4 * clip.denoise.latents[0];
  clip.decode.group_latents = clip.denoise.latents[0];
  clip.decode.cost = [](const DecodeLayout&, int) { return StageMemory{}; };
  return clip;
}

/// T5-XXL in bfloat16.
inline TextWorkload t5_xxl() {
  constexpr std::int64_t layer = 385'892'352, embedding = 263'192'576;
  return {24, layer, embedding, {}, [](const DeviceMap::Stage& part) {
            return StageMemory{(part.last - part.first) * layer + (part.embedding ? embedding : 0),
                               100 << 20, 0};
          }};
}

inline Workload one_size_workload(const DenoiseWorkload& denoise) {
  return {t5_xxl(), {clip_workload(denoise)}};
}

inline PlanMachine machine_with(int ranks) {
  PlanMachine machine;
  machine.ranks = ranks;
  return machine;
}

}  // namespace reelmesh::test

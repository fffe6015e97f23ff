#pragma once
// Workloads of released models: sizes only, no files.
#include "plan/workload.hpp"

namespace reelmesh::test {

/// CogVideoX-2b, 49 frames of 480 x 720: 13 x 30 x 45 tokens, 30 heads. Other systems stop at rank
/// counts that divide neither.
inline DenoiseWorkload cogvideox_2b(std::int64_t branches = 2) {
  DenoiseWorkload w;
  w.attention = AttentionKind::joint;
  w.latents = {13, 60, 90};
  w.patch = {1, 2, 2};
  w.latent_channels = w.predicted_channels = 16;
  w.text_tokens = 226;
  w.branches = branches;
  w.layers = 30;
  w.heads = 30;
  w.head_channels = 64;
  w.mlp_channels = 4 * 1920;
  w.element_bytes = 2;
  w.memory = [](const DenoiseLayout&, int) { return StageMemory{}; };
  return w;
}

/// Open-Sora 1.0, 16 frames of 256 x 256: 16 x 16 x 16 tokens.
inline DenoiseWorkload stdit_xl() {
  DenoiseWorkload w;
  w.attention = AttentionKind::space_time;
  w.latents = {16, 32, 32};
  w.patch = {1, 2, 2};
  w.latent_channels = 4;
  w.predicted_channels = 8;
  w.text_tokens = 120;
  w.branches = 2;
  w.layers = 28;
  w.heads = 16;
  w.head_channels = 72;
  w.mlp_channels = 4608;
  w.element_bytes = 4;
  w.memory = [](const DenoiseLayout&, int) { return StageMemory{}; };
  return w;
}

/// A clip with these denoising sizes, whose memory is counted as 0.
inline ClipWorkload clip_workload(DenoiseWorkload denoise) {
  ClipWorkload clip{std::move(denoise), {}};
  clip.decode.latents = clip.denoise.latents;
  clip.decode.frames = clip.decode.group_frames = 4 * clip.denoise.latents[0];
  clip.decode.group_latents = clip.denoise.latents[0];
  clip.decode.memory = [](const DecodeLayout&, int) { return StageMemory{}; };
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
  return {t5_xxl(), {clip_workload(denoise)}, 0, 0};
}

}  // namespace reelmesh::test

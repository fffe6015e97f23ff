#pragma once
// Decoding layouts of the model families, planned as in the pipeline.
#include "plan/decode.hpp"
#include "support/dry_workloads.hpp"

namespace reelmesh::test {

/// latents: [frame, channel, row, column]; frames: of the video.
inline DecodeLayout opensora_decode_layout(const OpenSoraVaeConfig& config, const Shape& latents,
                                           std::int64_t frames, int ranks,
                                           const RankWeights& weights = {}) {
  const Clip clip =
      dry_clip({latents.at(0), latents.at(2), latents.at(3)}, latents.at(1), frames, 2, 1, 1);
  return decode_layout(OpenSora(opensora_folder({}, config)).workload(clip, 1).decode, ranks,
                       weights);
}

/// latents: [frame, channel, row, column].
inline DecodeLayout wan_decode_layout(const WanVaeConfig& config, const Shape& latents, int ranks,
                                      const RankWeights& weights = {}) {
  const Clip clip = dry_clip({latents.at(0), latents.at(2), latents.at(3)}, latents.at(1),
                             WanVaeConfig::decoded_frames(latents.at(0)), 2, 2, 1);
  return decode_layout(Wan(wan_folder({}, config)).workload(clip, 1).decode, ranks, weights);
}

/// latents: [frame, channel, row, column].
inline DecodeLayout cogvideox_decode_layout(const CogVideoXVaeConfig& config, const Shape& latents,
                                            int ranks, const RankWeights& weights = {}) {
  const Clip clip = cogvideox_clip({}, {latents.at(0), latents.at(2), latents.at(3)}, 1, 1);
  return decode_layout(CogVideoX(cogvideox_folder({}, config)).workload(clip, 1).decode, ranks,
                       weights);
}

}  // namespace reelmesh::test

#pragma once
// Decoding layouts of the model families, planned as in the pipeline.
#include "job/families/cogvideox.hpp"
#include "job/families/opensora.hpp"
#include "plan/decode.hpp"

namespace reelmesh::test {

/// latents: [frame, channel, row, column]; frames: of the video.
inline DecodeLayout opensora_decode_layout(const OpenSoraVaeConfig& config, const Shape& latents,
                                           std::int64_t frames, int ranks,
                                           const RankWeights& weights = {}) {
  const ClipWorkload workload = opensora_workload(
      {}, config, {latents.at(0), latents.at(2), latents.at(3)}, frames, 1, 1, {});
  return decode_layout(workload.decode, ranks, weights);
}

/// latents: [frame, channel, row, column].
inline DecodeLayout cogvideox_decode_layout(const CogVideoXVaeConfig& config, const Shape& latents,
                                            int ranks, const RankWeights& weights = {}) {
  const ClipWorkload workload =
      cogvideox_workload({}, config, {latents.at(0), latents.at(2), latents.at(3)}, 0, 1, 1, 1, {});
  return decode_layout(workload.decode, ranks, weights);
}

}  // namespace reelmesh::test

#pragma once
// What one clip costs each rank of the world: memory of the stages, boxes, bytes that it sends and
// operations. Pure: from configurations and layouts.
#include "models/autoencoder/config.hpp"
#include "models/cogvideox/config.hpp"
#include "models/common/memory.hpp"
#include "models/opensora/placement.hpp"
#include "models/t5/t5.hpp"
#include "plan/memory.hpp"
#include "plan/space_time.hpp"

namespace reelmesh {

/// Everything by rank of the world; zero and empty where a rank has no part in it.
struct ClipCost {
  struct OfRank {
    StageMemory denoise, decode;
    Box tokens;                   ///< of video, [frame, row, column]
    Box text;                     ///< text tokens that it holds, [token]
    Box images;                   ///< that it decodes, in latents [frame, row, column]
    std::int64_t sent_bytes = 0;  ///< in a step
    double flops = 0;             ///< of a step
  };
  std::vector<OfRank> ranks;
};

/// The text encoder's share of each rank, by the plan's device map. tokens: of a prompt.
std::vector<StageMemory> text_memory(const Plan& plan, const T5Config& config, std::int64_t tokens,
                                     const Precision& precision);

/// latents: [frame, row, column] as they are denoised; the decoder gets kept_frames of them. clips:
/// denoised together; bytes and operations are of one.
ClipCost cogvideox_cost(const Plan& plan, const CogVideoXConfig& config,
                        const CogVideoXVaeConfig& vae, const DenoiseSizes& sizes,
                        const Shape& latents, std::int64_t kept_frames, std::int64_t clips,
                        const Precision& precision);

/// clips: denoised together. frames: of the video.
ClipCost open_sora_cost(const Plan& plan, const STDiTConfig& config, const OpenSoraVaeConfig& vae,
                        const STDiTClip& clip, std::int64_t clips, std::int64_t text_tokens,
                        std::int64_t frames, const Precision& precision);

}  // namespace reelmesh

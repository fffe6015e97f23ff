#pragma once
// The denoising of one clip by the ranks of one group.
#include <functional>

#include "models/cogvideox/transformer.hpp"
#include "pipeline/clip.hpp"

namespace reelmesh::pipeline {

/// Where text embeddings [token, branch, channel] have to be: cut by tokens and, with cfg 2, by
/// branches.
Layout context_layout(const DenoiseLayout& layout, std::int64_t branches, std::int64_t channels);

/// All steps of the sampler. context: this rank's part in context_layout, of the transformer's
/// type. → this rank's box of the latents, float32 [frame, channel, row, column], with dropped
/// frames; with cfg 2 both halves of the group have the same. step: called after each sampler step.
/// Collective over the group.
Tensor denoise_clip(const Clip& clip, const CogVideoXTransformer& transformer,
                    const SchedulerConfig& scheduler, const comm::Group& group,
                    const DenoiseLayout& layout, const Tensor& context,
                    const std::function<void()>& step);

}  // namespace reelmesh::pipeline

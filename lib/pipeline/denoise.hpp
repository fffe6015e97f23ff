#pragma once
// The denoising of a batch of clips by the ranks of one group.
#include <functional>

#include "models/cogvideox/transformer.hpp"
#include "pipeline/batch.hpp"

namespace reelmesh::pipeline {

/// Where a clip's text embeddings [token, branch, channel] have to be: cut by tokens and, with cfg
/// 2, by branches.
Layout context_layout(const DenoiseLayout& layout, std::int64_t branches, std::int64_t channels);

/// All steps of the sampler. contexts: of each clip this rank's part in context_layout, of the
/// transformer's type. → of each clip this rank's box of the latents, float32 [frame, channel, row,
/// column], with dropped frames; with cfg 2 both halves of the group have the same. step: called
/// after each sampler step of all clips. Collective over the group.
std::vector<Tensor> denoise_batch(const Batch& batch, const CogVideoXTransformer& transformer,
                                  const SchedulerConfig& scheduler, const comm::Group& group,
                                  const DenoiseLayout& layout, std::span<const Tensor> contexts,
                                  const std::function<void()>& step);

}  // namespace reelmesh::pipeline

#pragma once
// How a clip's arrays move from the ranks and layout of one stage to those of the next.
#include "job/clip.hpp"
#include "layout/relayout.hpp"
#include "plan/plan.hpp"

namespace reelmesh::pipeline {

/// Embeddings [token, text, channel], from plan.embeddings_rank() to a denoising group.
inline Move embeddings_to_denoising(const Plan& plan, const ClipPlan& size, std::size_t replica,
                                    const Clip& clip, std::int64_t channels) {
  const std::int64_t texts = std::ssize(clip.texts);
  return {Layout::replicated({clip.tokens(), texts, channels}, 1),
          size.denoise.at(replica).conditioning(clip.tokens(), texts, channels),
          plan.embeddings_rank(), plan.roles.denoise.at(replica).first};
}

/// How the input of a clip is cut while it is encoded: its latents [frame, row, column] on a group
/// of Roles::decode.
inline Layout encoded_layout(const ClipPlan& size, std::size_t decoder, const Clip& clip) {
  return size.decode.at(decoder).latents.cropped(0, 0, clip.input->latent_frames);
}

/// The encoded input [frame, channel, row, column], from a decoding group to
/// plan.embeddings_rank().
inline Move input_to_queue(const Plan& plan, const ClipPlan& size, std::size_t decoder,
                           const Clip& clip) {
  return {encoded_layout(size, decoder, clip).with_axis(1, clip.latent_channels),
          Layout::replicated(clip.input_shape(), 1), plan.roles.decode.at(decoder).first,
          plan.embeddings_rank()};
}

/// Layout of the encoded input over a denoising group: cut like the first frames of the latents;
/// with cfg 2 in each half of the group.
inline Layout input_layout(const DenoiseLayout& layout, const Clip& clip) {
  std::vector<int> ranks;
  for (int rank = 0; rank < layout.mesh.ranks(); ++rank) ranks.push_back(layout.branch_rank(rank));
  return layout.latents.cropped(0, 0, clip.input->latent_frames)
      .with_axis(1, clip.latent_channels)
      .of_ranks(ranks);
}

/// The encoded input, from plan.embeddings_rank() to a denoising group.
inline Move input_to_denoising(const Plan& plan, const ClipPlan& size, std::size_t replica,
                               const Clip& clip) {
  return {Layout::replicated(clip.input_shape(), 1), input_layout(size.denoise.at(replica), clip),
          plan.embeddings_rank(), plan.roles.denoise.at(replica).first};
}

/// Rows [row, channel] of the vision encoder, from the first rank of a decoding group to
/// plan.embeddings_rank().
inline Move vision_to_queue(const Plan& plan, std::size_t decoder, const Clip& clip) {
  return {Layout::replicated(clip.vision, 1), Layout::replicated(clip.vision, 1),
          plan.roles.decode.at(decoder).first, plan.embeddings_rank()};
}

/// The same, from there to all ranks of a denoising group.
inline Move vision_to_denoising(const Plan& plan, std::size_t replica, const Clip& clip) {
  const RankRange& ranks = plan.roles.denoise.at(replica);
  return {Layout::replicated(clip.vision, 1), Layout::replicated(clip.vision, ranks.count),
          plan.embeddings_rank(), ranks.first};
}

/// Latents [frame, channel, row, column], from a denoising group to a group of Roles::decode,
/// without the dropped frames. With cfg 2 both halves have the same latents, and the first half
/// sends them.
inline Move latents_to_decoding(const Plan& plan, const ClipPlan& size, std::size_t replica,
                                std::size_t decoder, const Clip& clip) {
  return {size.denoise.at(replica)
              .latents.cropped(0, clip.dropped_frames, clip.latents[0])
              .with_axis(1, clip.latent_channels),
          size.decode.at(decoder).latents.with_axis(1, clip.latent_channels),
          plan.roles.denoise.at(replica).first, plan.roles.decode.at(decoder).first};
}

/// Embeddings [token, text, channel], from a denoising group to a decoding group, which writes
/// them, with tokens cut. Of ranks that have the same, the first sends.
inline Move embeddings_to_writing(const Plan& plan, const ClipPlan& size, std::size_t replica,
                                  std::size_t decoder, const Clip& clip, std::int64_t channels) {
  const std::int64_t texts = std::ssize(clip.texts);
  const RankRange& decoders = plan.roles.decode.at(decoder);
  return {size.denoise.at(replica).conditioning(clip.tokens(), texts, channels).without_copies(),
          Layout::cut({clip.tokens(), texts, channels}, 0, decoders.count),
          plan.roles.denoise.at(replica).first, decoders.first};
}

}  // namespace reelmesh::pipeline

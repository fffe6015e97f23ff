#pragma once
// Layouts of one clip's arrays while a group denoises or decodes it: made once by the plan, read by
// models and stages.
#include <vector>

#include "layout/mesh.hpp"

namespace reelmesh {

/// Layouts over the ranks of one denoising group. With cfg 2 both halves of the group have the same
/// layouts of tokens and latents, each for its own branch of guidance; so these layouts are over
/// mesh.branch_ranks() ranks. How a model divides its work within them is its own matter.
struct DenoiseLayout {
  Mesh mesh;
  Layout tokens;           ///< of the video: [frame, row, column]
  Layout text;             ///< [token]: cut as the video's tokens are, or replicated
  Layout latents;          ///< [frame, row, column]: the patches of these tokens
  std::vector<int> parts;  ///< by which `tokens` is a grid; empty if it is none
  RankWeights weights;     ///< of the ranks of `tokens`; empty: equal

  /// A rank of the group → its rank in the layouts above.
  int branch_rank(int rank) const { return rank % mesh.branch_ranks(); }

  /// Text embeddings [token, branch, channel] over all ranks of the group: cut as `text`, if that
  /// is not replicated, and with cfg 2 by branches. tokens, branches, channels: the global extents;
  /// tokens must match `text` unless it is replicated.
  Layout conditioning(std::int64_t tokens, std::int64_t branches, std::int64_t channels) const;
};

/// Layouts over the ranks of the decoding group; rows and columns are counted in latents. A group
/// of frames are those that the decoder must process together. `images` differs from `frames` only
/// if a second autoencoder decodes frames one by one. What a clip begins from is encoded with the
/// same cuts of rows and columns.
struct DecodeLayout {
  Layout latents;  ///< [latent frame, row, column]: whole groups of frames
  Layout frames;   ///< [frame of the video, row, column]: the same groups
  Layout images;   ///< [frame of the video, row, column]: of the decoded pixels
};

/// The latents [frame, row, column] of a layout of tokens; patch: latents per token along the three
/// axes. The last patch along an axis may be partial.
Layout latents_of_tokens(const Layout& tokens, const Shape& patch, const Shape& latents);

}  // namespace reelmesh

#pragma once
// Where the arrays of one clip lie while a group denoises or decodes it: values that a plan makes
// once and that models and stages read.
#include <optional>

#include "layout/mesh.hpp"
#include "layout/space_time.hpp"

namespace reelmesh {

/// Which tokens attend to which.
enum class AttentionKind {
  joint,       ///< text and video tokens to all of both (CogVideoX); text is cut as the video is
  space_time,  ///< video tokens within their frame and along time in turn, and to the text by
               ///< cross-attention (Open-Sora); every rank has the whole text
};

/// Layouts over the ranks of one denoising group. With cfg 2 the two halves of the group have the
/// same layouts of tokens and latents, each for its own branch of guidance; so these are over
/// mesh.branch_ranks() ranks.
struct DenoiseLayout {
  AttentionKind attention_kind = AttentionKind::joint;
  Mesh mesh;
  Layout tokens;                           ///< of the video: [frame, row, column]
  Layout text;                             ///< [token]
  Layout latents;                          ///< [frame, row, column]: what the tokens stand for
  std::optional<AttentionMesh> attention;  ///< joint, of one clip
  std::optional<SpaceTime> space_time;     ///< space_time

  /// A rank of the group → its rank in the layouts above.
  int branch_rank(int rank) const { return rank % mesh.branch_ranks(); }

  /// Text embeddings [token, branch, channel] over all ranks of the group: with joint attention cut
  /// as `text` is and, with cfg 2, by branches; otherwise whole on every rank. tokens: of this
  /// text.
  Layout conditioning(std::int64_t tokens, std::int64_t branches, std::int64_t channels) const;
};

/// Layouts over the ranks of the decoding group, rows and columns counted in latents. A group of
/// frames is what the decoder needs together.
struct DecodeLayout {
  Layout latents;  ///< [latent frame, row, column]: whole groups of frames
  Layout frames;   ///< [frame of the video, row, column]: the same groups
  Layout images;   ///< [frame of the video, row, column]: as frames are decoded in the end
};

/// The latents [frame, row, column] that the tokens stand for, `patch` latents each along the three
/// axes. Tokens at the far edges may stand for fewer.
Layout latents_of_tokens(const Layout& tokens, const Shape& patch, const Shape& latents);

}  // namespace reelmesh

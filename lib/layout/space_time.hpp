#pragma once
// Layouts of a model whose tokens attend within their frame and along time in turn (dynamic
// sequence parallelism; Zhao et al. 2024), as values. Each attention decides which axis is whole.
#include <optional>

#include "layout/layout.hpp"

namespace reelmesh {

/// The tokens of one clip over a group. A frame's tokens are numbered row by row: [frame, pixel].
/// Frames are cut where tokens attend within their frame; the tokens of a frame are cut where they
/// attend along time, and for everything that is done token by token. The two relayouts between
/// these are all that a pair of spatial and temporal attention sends. With more ranks than frames,
/// frames are cut into rows as well, and spatial attention divides a frame's heads among the ranks
/// that share the frame.
struct SpaceTime {
  Layout tokens;      ///< [frame, row, column]: frames (and rows) cut; also the latents'
  Layout spatial;     ///< [frame, token of the frame]: the same boxes
  Layout temporal;    ///< [frame, token of the frame]: tokens of the frame cut
  int row_parts = 1;  ///< ranks that share a frame
  /// [frame, token of the frame, head], before and after the relayout by which ranks that share
  /// frames divide their heads.
  struct ByHeads {
    Layout tokens;  ///< as `spatial`, with all heads
    Layout heads;   ///< whole frames, heads cut
  };
  std::optional<ByHeads> by_heads;  ///< only where frames are not whole

  /// frame_parts × row_parts ranks; the ranks that share a frame are neighbours. heads: of the
  /// attention.
  SpaceTime(const Shape& tokens, int frame_parts, int row_parts, std::int64_t heads,
            const RankWeights& weights = {});

  bool frames_are_whole() const { return row_parts == 1; }
};

}  // namespace reelmesh

#pragma once
// Layouts of a model that alternates attention within frames and along time (dynamic sequence
// parallelism; Zhao et al. 2024), as values. The kind of attention decides which axis is whole.
#include <optional>

#include "layout/clip_layout.hpp"

namespace reelmesh {

/// The tokens of one clip over a group. The tokens of a frame are numbered row by row. For spatial
/// attention (within a frame), frames are cut. For temporal attention, and for everything that
/// works token by token, the tokens of a frame are cut. A pair of spatial and temporal attention
/// sends only the two relayouts between these. With more ranks than frames, rows are cut as well,
/// and the ranks that share a frame divide the heads of its spatial attention.
struct SpaceTime {
  Layout tokens;       ///< [frame, row, column]: frames (and rows) cut, as the latents are
  Layout spatial;      ///< [frame, token of the frame]: the same boxes
  Layout temporal;     ///< [frame, token of the frame]: tokens of the frame cut
  int split_rows = 1;  ///< ranks that share a frame
  /// [frame, token of the frame, head] before and after the relayout from cut rows to cut heads,
  /// among ranks that share frames.
  struct ByHeads {
    Layout tokens;  ///< like `spatial`, with all heads
    Layout heads;   ///< whole frames, heads cut
  };
  std::optional<ByHeads> by_heads;  ///< only if split_rows > 1

  /// For frame_parts × split_rows ranks; the ranks that share a frame are neighbours. tokens:
  /// [frame, row, column]. heads: of spatial attention.
  SpaceTime(const Shape& tokens, int frame_parts, int split_rows, std::int64_t heads,
            const RankWeights& weights = {});

  /// For a grid of such parts: layout.parts and layout.weights.
  static SpaceTime of(const DenoiseLayout& layout, std::int64_t heads);

  bool frames_are_whole() const { return split_rows == 1; }
};

}  // namespace reelmesh

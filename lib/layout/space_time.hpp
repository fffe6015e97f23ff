#pragma once
// Layouts of a model whose tokens attend within their frame and along time in turn (dynamic
// sequence parallelism; Zhao et al. 2024), as values. What must be whole decides on the cut.
#include "layout/layout.hpp"

namespace reelmesh {

/// How the tokens of one clip lie over a group. Places are the tokens of a frame in row-major
/// order. Frames are cut where tokens attend within their frame, places where they attend along
/// time and for all that is done token by token; going from one to the other and back is all that a
/// pair of spatial and temporal attention sends. Where ranks outnumber frames the first is a grid
/// of frames × rows, and a frame's attention has its heads spread over the ranks of the frame.
struct SpaceTime {
  Layout grid;    ///< [frame, row, column]: the first cut; also that of latents
  Layout frames;  ///< [frame, place]: the same boxes
  Layout places;  ///< [frame, place]: places cut over all ranks
  int row_parts = 1;
  std::vector<double> speeds;

  /// frame_parts × row_parts ranks, the rows of a frame on neighbouring ranks; by the speeds of the
  /// ranks where these are given.
  SpaceTime(const Shape& tokens, int frame_parts, int row_parts,
            const std::vector<double>& speeds = {});

  bool frames_are_whole() const { return row_parts == 1; }
  /// [frame, place, head] for the attention within frames that are not whole: frames as in `grid`,
  /// heads cut over the ranks that share them.
  Layout heads(std::int64_t count) const;
  /// The same with heads whole: `frames` with an axis more.
  Layout frames_with_heads(std::int64_t count) const;
};

}  // namespace reelmesh

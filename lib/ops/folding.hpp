#pragma once
// Sums of a small and a large video, of which one is folded or unfolded (Wan 2.2's autoencoder).
#include "base/host_device.hpp"
#include "tensor/tensor.hpp"

namespace reelmesh::ops {

/// How pixels of a large video are folded into the channels of a small one: each pixel of the small
/// video has `frames` × side × side pixels of the large one, in the order channel, frame, row,
/// column.
struct Folding {
  std::int64_t frames = 1, side = 1;
  std::int64_t missing = 0;  ///< frames that come before the first of the large video
  /// Of the frames from the first of a clip on, whose first frame is the last of its fold, or of
  /// later ones.
  Folding in_chunk(bool first) const { return {frames, side, first ? frames - 1 : 0}; }
};

/// small += `large` folded, of whose channels as many neighbours are averaged as makes the channels
/// of `small`; missing frames are zero. Both: [frame, row, column, channel] of one type.
void add_folded(Tensor& small, const Tensor& large, const Folding& folding);
/// large += `small` unfolded, whose channels are repeated, each as often as makes the channels of
/// `large`.
void add_unfolded(Tensor& large, const Tensor& small, const Folding& folding);

/// Where the elements of a small video are in a large one, on host and device.
struct FoldOrder {
  std::int64_t rows = 0, columns = 0, channels = 0;  ///< of the large video
  std::int64_t frames = 1, side = 1, missing = 0;    ///< as Folding
  std::int64_t small_channels = 0;
  std::int64_t neighbours = 1;  ///< folded channels of one channel of the small video

  static FoldOrder of(const Shape& small, const Shape& large, const Folding& f) {
    return {large[1], large[2],  large[3], f.frames,
            f.side,   f.missing, small[3], large[3] * f.frames * f.side * f.side / small[3]};
  }
  /// The offset in the large video of folded channel `folded` of pixel (frame, row, column) of the
  /// small one; negative if that frame is missing.
  REELMESH_HOST_DEVICE std::int64_t large(std::int64_t pixel, std::int64_t folded) const {
    const std::int64_t small_columns = columns / side, small_rows = rows / side;
    const std::int64_t x = pixel % small_columns, y = pixel / small_columns % small_rows;
    const std::int64_t dx = folded % side, dy = folded / side % side;
    const std::int64_t dt = folded / side / side % frames;
    const std::int64_t channel = folded / side / side / frames;
    const std::int64_t frame = pixel / small_columns / small_rows * frames + dt - missing;
    return ((frame * rows + y * side + dy) * columns + x * side + dx) * channels + channel;
  }
  /// The offset in the small video of what is added to channel `channel` of a pixel of the large
  /// one.
  REELMESH_HOST_DEVICE std::int64_t small(std::int64_t pixel, std::int64_t channel) const {
    const std::int64_t x = pixel % columns, y = pixel / columns % rows;
    const std::int64_t frame = pixel / columns / rows + missing;
    const std::int64_t folded =
        ((channel * frames + frame % frames) * side + y % side) * side + x % side;
    return ((frame / frames * (rows / side) + y / side) * (columns / side) + x / side) *
               small_channels +
           folded / neighbours;
  }
};

}  // namespace reelmesh::ops

#pragma once
// Images whose rows and columns are sharded over a group as rectangles: halo exchange, and exact
// sums over all rectangles.
#include <span>

#include "layout/relayout.hpp"
#include "ops/convolution.hpp"
#include "ops/exact_sum.hpp"

namespace reelmesh {

/// Halo exchange: the pixels around each rank's rectangle within the image, including corners, are
/// received from the ranks that hold them, in one message per neighbour. Made once for a shape and
/// used many times.
class Halo {
 public:
  /// image: [frame, row, column, channel], a partition in which frames and channels are whole.
  /// window: of the convolution that needs the halo; rectangles begin and end at multiples of its
  /// stride.
  Halo(const comm::Group& group, const Layout& image, const ops::Window& window = {});

  /// A pending halo exchange. image: its first piece is this rank's rectangle; the other pieces are
  /// being received.
  struct Pending {
    Tensor own;
    ops::Image image;
    Exchange::Pending exchange;
    void finish();
  };
  /// x: this rank's rectangle; an empty one gives an image without pieces. The Halo must stay alive
  /// and must not be moved until the exchange is finished.
  Pending begin(const Tensor& x) const;

 private:
  Halo(const comm::Group& group, const Layout& image, const std::vector<Move>& strips);
  Shape global_;
  Box own_;
  std::vector<Box> strips_;  ///< around this rank's rectangle
  Exchange exchange_;
};

/// Convolution overlapped with a pending halo exchange: computes inner tiles, finishes the
/// exchange, then computes the tiles that need the halo. previous, enlarged: as for
/// ops::Convolution; the convolution's window is that of the halo. → this rank's rectangle of the
/// result, [frame, row, column, out].
Tensor convolve(const ops::Convolution& convolution, Halo::Pending& x, const ops::Image& previous,
                std::int64_t enlarged = 1);

/// Adds each sum over all ranks, in place, on every rank. Collective.
void add_up(const comm::Group& group, std::span<ops::ExactSum> sums);

}  // namespace reelmesh

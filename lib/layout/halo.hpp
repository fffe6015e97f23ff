#pragma once
// Images whose rows and columns are spread over a group as rectangles: the pixels around each
// rectangle, and sums over all of them.
#include <span>

#include "layout/relayout.hpp"
#include "ops/convolution.hpp"
#include "ops/exact_sum.hpp"

namespace reelmesh {

/// The pixels next to each rank's rectangle, one on every side within the image, corners too, from
/// the ranks that hold them: one message to each neighbour. Made once for a shape and used many
/// times.
class Halo {
 public:
  /// image: [frame, row, column, channel], a partition in which frames and channels are whole.
  Halo(const comm::Group& group, const Layout& image);

  /// An image whose first piece this rank holds, while the others are on their way.
  struct Running {
    Tensor own;
    ops::Image image;
    Exchange::Running exchange;
    void finish() { exchange.finish(); }
  };
  /// x: this rank's rectangle. An empty one makes an image without pieces. The Halo stays where it
  /// is until the end.
  Running begin(const Tensor& x) const;

  /// The adjoint, for derivatives: adds the pieces around this rank's rectangle (above, below,
  /// left, right; empty ones too) to x on the ranks that hold these pixels. float32.
  void add_back(const std::vector<Tensor>& strips, Tensor& x) const {
    std::vector<Tensor> sources(strips.size(), x);  // of each strip, all in the memory of x
    exchange_.add_back(strips, sources);
  }
  const std::vector<Box>& strips() const { return strips_; }

 private:
  Halo(const comm::Group& group, const Layout& image, const std::vector<Move>& strips);
  Shape global_;
  Box own_;
  std::vector<Box> strips_;  ///< of this rank
  Exchange exchange_;
};

/// The convolution of an image that is under way: its inner tiles while pixels of other ranks come,
/// then the others. previous: as for ops::Convolution. → this rank's rectangle of the result,
/// [frame, row, column, out]. Ends the exchange.
Tensor convolve(const ops::Convolution& convolution, Halo::Running& x, const ops::Image& previous,
                std::int64_t enlarged = 1);

/// Each sum over all ranks, on every rank. Collective.
void add_up(const comm::Group& group, std::span<ops::ExactSum> sums);

}  // namespace reelmesh

#pragma once
// A rank's rectangle of images that several ranks decode together.
#include <map>
#include <memory>
#include <optional>

#include "layout/halo.hpp"
#include "models/common/layers.hpp"
#include "ops/group_norm.hpp"

namespace reelmesh {

/// The rectangle that this rank has of some frames. Convolutions exchange halos with, and group
/// norms and attention take all pixels of, the ranks that have other rectangles of the same frames.
class ImagePart {
 public:
  /// images: [frame, row, column] over the group; ranks whose boxes begin at the same frame have
  /// the same frames. Nothing where this rank's box is empty. Collective over the group.
  static std::optional<ImagePart> of(const comm::Group& group, const Layout& images);

  /// The same part of images that are twice as high and wide.
  ImagePart enlarged() const;

  /// x [frame, row, column, channel] with the pixels around it on their way; for
  /// reelmesh::convolve.
  Halo::Running begin(const Tensor& x) const;

  /// The convolution of x [frame, row, column, channel], which is enlarged twice first where
  /// `enlarged` is 2. Beyond the edges, and in frames before the first, everything is zero.
  Tensor convolve(const ops::Convolution& convolution, const Tensor& x,
                  std::int64_t enlarged = 1) const;

  /// Statistics of the group norm of x over all its frames, rows and columns.
  ops::GroupStatistics statistics(const Tensor& x, std::int64_t groups, double eps) const;
  /// That group norm, then silu where asked.
  Tensor group_norm(const Tensor& x, const Affine& affine, std::int64_t groups, double eps,
                    bool with_silu) const;

  /// Attention with one head of all channels, every pixel to all pixels of the image. query,
  /// key_value: [1, row, column, channel and 2·channel] → as query.
  Tensor attend(const Tensor& query, const Tensor& key_value, const Numerics& numerics) const;

 private:
  using Halos = std::map<Shape, Halo>;  ///< by the extents of the whole image

  ImagePart(const comm::Group& group, Layout pixels);
  Layout layout_of(const Tensor& x) const;

  comm::Group group_;       ///< the ranks that have parts of the same images
  Layout pixels_;           ///< [row, column] over that group
  std::int64_t scale_ = 1;  ///< pixels along each axis for one of the images that it was made for
  std::shared_ptr<Halos> halos_;
};

}  // namespace reelmesh

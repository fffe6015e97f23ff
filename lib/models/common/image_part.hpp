#pragma once
// A rank's rectangle of images that several ranks decode or encode together.
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "layout/halo.hpp"
#include "models/common/layers.hpp"
#include "ops/group_norm.hpp"

namespace reelmesh {

/// This rank's rectangle of some frames. Convolutions exchange halos with the ranks that have the
/// other rectangles of these frames; group norms and attention use the pixels of all of them.
class ImagePart {
 public:
  /// images: [frame, row, column] over the group; boxes that begin at the same frame must have the
  /// same frames. → nullopt if this rank's box is empty. Collective over the group.
  static std::optional<ImagePart> of(const comm::Group& group, const Layout& images);

  /// The same part of the images after they are upsampled to twice the height and width.
  ImagePart enlarged() const;

  /// Begins the halo exchange of x [frame, row, column, channel] for convolutions with this window;
  /// reelmesh::convolve takes the result.
  Halo::Pending begin(const Tensor& x, const ops::Window& window = {}) const;

  /// Convolves x [frame, row, column, channel]; if `enlarged` is 2, x is upsampled first by
  /// repeating pixels. Zero padding beyond the edges and before the first frame.
  Tensor convolve(const ops::Convolution& convolution, const Tensor& x,
                  std::int64_t enlarged = 1) const;

  /// Group norm statistics of x over its frames and all rows and columns of the images.
  ops::GroupStatistics statistics(const Tensor& x, std::int64_t groups, double eps) const;
  /// Group norm with these statistics, followed by silu if with_silu.
  Tensor group_norm(const Tensor& x, const Affine& affine, std::int64_t groups, double eps,
                    bool with_silu) const;

  /// Single-head attention of every pixel to all pixels of the image. query: [1, row, column,
  /// channel]; key_value: [1, row, column, 2·channel] → shaped as query.
  Tensor attend(const Tensor& query, const Tensor& key_value, const Numerics& numerics) const;

 private:
  /// By the shape of the whole image and the widths of the halo before and after a rectangle.
  using Halos = std::map<std::tuple<Shape, std::int64_t, std::int64_t>, Halo>;

  ImagePart(const comm::Group& group, Layout pixels);
  Layout image_layout(const Tensor& x) const;

  comm::Group group_;       ///< the ranks that have parts of the same images
  Layout pixels_;           ///< [row, column] over that group
  std::int64_t scale_ = 1;  ///< upsampling since of(): pixels along each axis per original pixel
  std::shared_ptr<Halos> halos_;
};

}  // namespace reelmesh

#pragma once
// What a rank has of an image that it decodes, alone or together with others.
#include <map>
#include <memory>

#include "layout/halo.hpp"
#include "models/common/layers.hpp"

namespace reelmesh {

/// A rectangle of images. Ranks of the group that work on other images hold nothing here; those of
/// one image exchange with nobody else.
class ImagePart {
 public:
  /// pixels: [row, column] of the images, cut over the ranks that work on them.
  ImagePart(const comm::Group& group, Layout pixels)
      : group_(group), pixels_(std::move(pixels)), halos_(std::make_shared<Halos>()) {}

  /// The same part of images that are twice as high and wide.
  ImagePart enlarged() const;

  /// The convolution of x [frame, row, column, channel], which is enlarged twice first where
  /// `enlarged` is 2. Beyond the edges, and in frames before the first, everything is zero.
  Tensor convolve(const ops::Convolution& convolution, const Tensor& x,
                  std::int64_t enlarged = 1) const;

  /// Group norm of x over all its frames, rows and columns, then silu where asked.
  Tensor group_norm(const Tensor& x, const Affine& affine, std::int64_t groups, double eps,
                    bool with_silu) const;

  /// Attention with one head of all channels, every pixel to all pixels of the image. query,
  /// key_value: [1, row, column, channel and 2·channel] → as query.
  Tensor attend(const Tensor& query, const Tensor& key_value) const;

 private:
  using Halos = std::map<Shape, Halo>;  ///< by the extents of the whole image

  Layout layout_of(const Tensor& x) const;

  comm::Group group_;
  Layout pixels_;
  std::int64_t scale_ = 1;  ///< pixels of a latent along each axis
  std::shared_ptr<Halos> halos_;
};

}  // namespace reelmesh

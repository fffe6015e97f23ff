#include "models/common/image_part.hpp"

#include <cmath>

#include "ops/attention.hpp"
#include "ops/norm.hpp"

namespace reelmesh {

ImagePart::ImagePart(const comm::Group& group, Layout pixels)
    : group_(group), pixels_(std::move(pixels)), halos_(std::make_shared<Halos>()) {}

std::optional<ImagePart> ImagePart::of(const comm::Group& group, const Layout& images) {
  const Box& mine = own_box(images, group);
  std::vector<int> first_frames;
  for (int r = 0; r < images.ranks(); ++r) {
    const Box& box = images.box(r);
    first_frames.push_back(box.empty() ? -1 : static_cast<int>(box.offset[0]));
  }
  const comm::Group together = group.split(first_frames);
  if (mine.empty()) return std::nullopt;
  std::vector<Box> pixels;
  for (int r = 0; r < images.ranks(); ++r) {
    const Box& box = images.box(r);
    if (box.empty() || box.offset[0] != mine.offset[0]) continue;
    pixels.push_back({{box.offset[1], box.offset[2]}, {box.extent[1], box.extent[2]}});
  }
  return ImagePart(together, Layout({images.global()[1], images.global()[2]}, std::move(pixels)));
}

ImagePart ImagePart::enlarged() const {
  ImagePart part = *this;
  part.pixels_ = pixels_.scaled(0, 2).scaled(1, 2);
  part.scale_ *= 2;
  return part;
}

Layout ImagePart::image_layout(const Tensor& x) const {
  return pixels_.with_axis(0, x.shape(0)).with_axis(3, x.shape(3));
}

Halo::Pending ImagePart::begin(const Tensor& x, const ops::Window& window) const {
  const Shape &pixels = pixels_.global(), image{x.shape(0), pixels[0], pixels[1], x.shape(3)};
  const std::tuple key{image, window.before, window.halo_after()};
  auto found = halos_->find(key);
  if (found == halos_->end()) {
    found = halos_->try_emplace(key, group_, image_layout(x), window).first;
  }
  return found->second.begin(x);
}

Tensor ImagePart::convolve(const ops::Convolution& convolution, const Tensor& x,
                           std::int64_t enlarged) const {
  Halo::Pending pending = begin(x, convolution.window());
  ops::Image before;  // zeros in place of earlier frames, for convolutions over frames
  if (convolution.frames() > 1) {
    before = pending.image;
    for (ops::Image::Piece& piece : before.pieces) {
      Shape shape = piece.values.shape();
      shape[0] = convolution.frames() - 1;
      piece.values = Tensor::zeros(shape, x.dtype(), x.device());
    }
  }
  return reelmesh::convolve(convolution, pending, before, enlarged);
}

ops::GroupStatistics ImagePart::statistics(const Tensor& x, std::int64_t groups, double eps) const {
  if (group_.size() == 1) return ops::group_statistics(x, groups, scale_, eps);
  std::vector<ops::ExactSum> sums = ops::group_sums(x, groups, scale_);
  add_up(group_, sums);
  const double count = static_cast<double>(x.shape(0) * (x.shape(3) / groups)) *
                       static_cast<double>(numel(pixels_.global()));
  return ops::group_statistics(sums, count, eps, x.device());
}

Tensor ImagePart::group_norm(const Tensor& x, const Affine& affine, std::int64_t groups, double eps,
                             bool with_silu) const {
  return ops::group_norm(x, statistics(x, groups, eps), affine.weight, affine.bias, with_silu);
}

Tensor ImagePart::attend(const Tensor& query, const Tensor& key_value,
                         const Numerics& numerics) const {
  const std::int64_t channels = query.shape(3), pixels = numel(pixels_.global());
  const Layout cut = image_layout(key_value);
  // The whole image on each rank that has a part of it.
  const Layout whole = cut.grown(1, cut.global()[1]).grown(2, cut.global()[2]);
  const Tensor all = relayout({key_value, cut, group_}, whole).local;
  ops::Attention attention(query.reshape({query.numel() / channels, 1, 1, channels}),
                           static_cast<float>(1.0 / std::sqrt(static_cast<double>(channels))), 1,
                           numerics);
  attention.add(all.reshape({pixels, 1, 2, 1, channels}));
  return attention.finish().reshape(query.shape());
}

}  // namespace reelmesh

#include "models/autoencoder/image_rows.hpp"

#include <cstring>

#include "layout/relayout.hpp"
#include "ops/group_norm.hpp"
#include "ops/norm.hpp"

namespace reelmesh {
namespace {

// [frame, row, column, channel], cut as the rows are.
Layout layout_of(const ImageRows& image, const Tensor& x) {
  return image.rows.with_axis(0, x.shape(0)).with_axis(2, x.shape(2)).with_axis(3, x.shape(3));
}

// Sums of all rows, in their order, on every rank that has rows of this image.
std::vector<double> all_rows(const ImageRows& image, const std::vector<double>& mine,
                             std::int64_t values) {
  // The doubles travel as bytes: they are only moved.
  const Layout from = image.rows.with_axis(1, values * static_cast<std::int64_t>(sizeof(double)));
  const Tensor source = Tensor::empty(own_box(from, image.group).extent, DType::uint8);
  if (source.empty()) return {};
  std::memcpy(source.raw(), mine.data(), static_cast<std::size_t>(source.bytes()));
  const Sharded all = relayout({source, from, image.group}, from.grown(0, image.rows.global()[0]));
  std::vector<double> result(static_cast<std::size_t>(image.rows.global()[0] * values));
  std::memcpy(result.data(), all.local.raw(), result.size() * sizeof(double));
  return result;
}

}  // namespace

ops::RowWindow ImageRows::window() const {
  const Box& box = own_box(rows, group);
  return {box.offset[0], box.extent[0], rows.global()[0]};
}

std::pair<Tensor, ops::RowWindow> ImageRows::with_halo(const Tensor& x) const {
  if (x.empty()) return {x, window()};
  const Layout layout = layout_of(*this, x);
  const Sharded grown = relayout({x, layout, group}, layout.grown(1, 1));
  const Box& box = grown.box();
  return {grown.local, {box.offset[1], box.extent[1], rows.global()[0]}};
}

Tensor ImageRows::group_norm(const Tensor& x, const Affine& affine, std::int64_t groups, double eps,
                             bool with_silu) const {
  if (x.empty()) return x;
  const double count = static_cast<double>(x.shape(0) * x.shape(2) * (x.shape(3) / groups)) *
                       static_cast<double>(rows.global()[0]);
  const auto sums = all_rows(*this, ops::group_sums(x, groups), 2 * groups);
  return ops::group_norm(x, ops::group_statistics(sums, groups, count, eps), affine.weight,
                         affine.bias, with_silu);
}

Tensor ImageRows::on_whole(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) const {
  if (x.empty()) return x;
  const Layout cut = layout_of(*this, x);
  int holder = 0;
  while (cut.box(holder).empty()) ++holder;
  const Layout whole = Layout::on_one_rank(cut.global(), cut.ranks(), holder);
  Sharded image = relayout({x, cut, group}, whole);
  if (!image.local.empty()) image.local = f(image.local);
  return relayout(image, cut).local;
}

}  // namespace reelmesh

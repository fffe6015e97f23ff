#pragma once
// Rows of the images that some ranks of a group work on together.
#include <functional>

#include "layout/sharded.hpp"
#include "models/common/layers.hpp"
#include "ops/convolution.hpp"

namespace reelmesh {

/// Who holds which rows of an image. Ranks of the group that work on other images hold no rows
/// here; each part of the group has such a value of its own and exchanges with nobody else.
struct ImageRows {
  comm::Group group;
  Layout rows;  ///< one axis

  ops::RowWindow window() const;

  /// x [frame, row, column, channel] with one more row on each side, from the ranks that hold them.
  std::pair<Tensor, ops::RowWindow> with_halo(const Tensor& x) const;

  ImageRows enlarged() const { return {group, rows.scaled(0, 2)}; }

  /// Group norm of x over all frames, rows and columns, then silu where asked. The sums are added
  /// up in the order of the rows.
  Tensor group_norm(const Tensor& x, const Affine& affine, std::int64_t groups, double eps,
                    bool with_silu) const;

  /// f of whole images: on one rank, which gets all rows and gives them back. f keeps the extents.
  Tensor on_whole(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) const;
};

}  // namespace reelmesh

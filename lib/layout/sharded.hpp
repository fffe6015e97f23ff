#pragma once
#include "comm/group.hpp"
#include "layout/layout.hpp"

namespace reelmesh {

/// The calling rank's box of an array with this layout over the group.
inline const Box& own_box(const Layout& layout, const comm::Group& group) {
  return layout.box(group.rank());
}

/// This rank's part of an array that is sharded over a group. `local` has the extents of
/// own_box(layout, group); it is empty on ranks that hold nothing.
struct Sharded {
  Tensor local;
  Layout layout;
  comm::Group group;

  const Box& box() const { return own_box(layout, group); }
};

}  // namespace reelmesh

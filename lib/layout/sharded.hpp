#pragma once
#include "comm/group.hpp"
#include "layout/layout.hpp"

namespace reelmesh {

/// This rank's part of an array that is laid out over a group. `local` has the extents of
/// layout.box(group.rank()); it is empty on ranks that hold nothing.
struct Sharded {
  Tensor local;
  Layout layout;
  comm::Group group;

  const Box& box() const { return layout.box(group.rank()); }
};

}  // namespace reelmesh

#pragma once
// Tensors that all ranks have, as a part on each rank, and back.
#include "layout/relayout.hpp"
#include "support/ranks.hpp"

namespace reelmesh::test {

/// This rank's part of a tensor that is the same on all ranks of the group. Collective.
inline Sharded spread(const Tensor& whole, const Layout& layout,
                      const comm::Group& group = world()) {
  return relayout({whole, Layout::replicated(whole.shape(), group.size()), group}, layout);
}

/// All of it, on every rank. Collective.
inline Tensor gathered(const Sharded& x) {
  return relayout(x, Layout::replicated(x.layout.global(), x.layout.ranks())).local;
}

}  // namespace reelmesh::test

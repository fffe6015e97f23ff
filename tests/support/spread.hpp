#pragma once
// Tensors that all ranks of test::world() have, as parts of each, and back.
#include "layout/relayout.hpp"
#include "support/ranks.hpp"

namespace reelmesh::test {

/// This rank's part of a tensor that is the same on all ranks. Collective.
inline Sharded spread(const Tensor& whole, const Layout& layout) {
  return relayout({whole, Layout::replicated(whole.shape(), world().size()), world()}, layout);
}

/// All of it, on every rank. Collective.
inline Tensor gathered(const Sharded& x) {
  return relayout(x, Layout::replicated(x.layout.global(), x.layout.ranks())).local;
}

}  // namespace reelmesh::test

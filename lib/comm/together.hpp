#pragma once
#include <functional>

#include "comm/group.hpp"

namespace reelmesh::comm {

/// Runs `work` on every rank. Where it fails on any rank, all ranks throw the same Error, that of
/// the first rank that failed, so that a group leaves a common task in one piece. Collective.
/// `work` must not wait for other ranks after something failed on one of them.
void together(const Group& group, const std::function<void()>& work);

}  // namespace reelmesh::comm

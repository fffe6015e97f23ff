#pragma once
#include <functional>

#include "comm/group.hpp"

namespace reelmesh::comm {

/// Runs `work` on every rank. If it throws on some ranks, all ranks throw the Error of the lowest
/// of them, so that no rank goes on without the others. Collective. `work` must not wait for other
/// ranks after it has failed on one of them.
void run_collectively(const Group& group, const std::function<void()>& work);

/// Runs `work` on rank 0; if it fails, all ranks throw the same error. Collective.
void run_on_first_rank(const Group& group, const std::function<void()>& work);

}  // namespace reelmesh::comm

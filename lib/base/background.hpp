#pragma once
// Progress of pending MPI transfers while this thread computes: they need a call into MPI now and
// then. Long loops call background() between chunks of work.

namespace reelmesh {

/// Called by background(), for each thread. Set by lib/comm; nullptr while nothing is pending.
inline thread_local void (*background_work)() = nullptr;

inline void background() {
  if (background_work != nullptr) background_work();
}

}  // namespace reelmesh

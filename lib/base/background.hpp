#pragma once
// What must get on while this thread computes: messages on their way need a call into MPI now and
// then. Long loops call background() between pieces of their work.

namespace reelmesh {

/// Of the calling thread; nullptr where nothing is under way. Set by those who start such work.
inline thread_local void (*background_work)() = nullptr;

inline void background() {
  if (background_work != nullptr) background_work();
}

}  // namespace reelmesh

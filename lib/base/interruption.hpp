#pragma once
// Leaving a long computation before its end. Models call interruption_point() between their layers,
// and attention between parts of many keys, the same number of times on all ranks that compute
// together.
#include <functional>

namespace reelmesh {

/// Called by interruption_point(), for each thread. Set by lib/pipeline; may throw.
inline thread_local std::function<void()> at_interruption_point;

inline void interruption_point() {
  if (at_interruption_point) at_interruption_point();
}

}  // namespace reelmesh

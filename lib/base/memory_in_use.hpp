#pragma once
#include <cstdint>

#include "base/relaxed.hpp"

namespace reelmesh {

/// Of the memory where a rank computes: of its GPU or its host. In bytes.
struct MemoryInUse {
  std::int64_t used = 0;    ///< by this rank
  std::int64_t limit = 0;   ///< what it may use; 0: not measured
  std::int64_t others = 0;  ///< used by all else
};

/// What this process measured last (pipeline/memory_watch.hpp). One thread writes it, others read
/// each number at any time.
inline struct MeasuredMemory {
  Relaxed<std::int64_t> used = 0, limit = 0, others = 0;
  MemoryInUse now() const { return {used, limit, others}; }
} measured_memory;

}  // namespace reelmesh

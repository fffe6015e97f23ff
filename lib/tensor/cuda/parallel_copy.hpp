#pragma once
#include <cstdint>

namespace reelmesh::cuda {

/// As many threads as parallel_copy() uses: up to 4, at most as many as there are cores for this
/// process.
int copy_threads();

/// memcpy by copy_threads() threads, from 1 MiB on: a core copies 5 to 10 GB/s, a link to a GPU has
/// 25 and more. Calls of several threads take turns.
void parallel_copy(void* into, const void* from, std::int64_t bytes);

}  // namespace reelmesh::cuda

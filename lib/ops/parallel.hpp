#pragma once
// OpenMP threads of one rank. A task computes the same values on any thread, so results do not
// depend on the number of threads.
#include <omp.h>

#include <cstdint>
#include <exception>

#include "base/background.hpp"
#include "base/clones.hpp"

namespace reelmesh::ops {

/// Calls f(i) for i in [0, n), distributed over the threads in chunks of `grain`, and background()
/// after each chunk. If tasks throw, one of their exceptions is rethrown here.
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
  if (n <= 0) return;
  if (n <= grain || omp_get_max_threads() == 1) {
    for (std::int64_t i = 0; i < n; ++i) {
      f(i);
      if ((i + 1) % grain == 0) background();
    }
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t chunk = 0; chunk < (n + grain - 1) / grain; ++chunk) {
    try {
      for (std::int64_t i = chunk * grain; i < n && i < (chunk + 1) * grain; ++i) f(i);
      background();
    } catch (...) {
#pragma omp critical(reelmesh_parallel_for)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// Calls f(first, count) for parts of [0, n) of at most `size` elements, distributed likewise.
template <class F>
void parallel_parts(std::int64_t n, std::int64_t size, F&& f) {
  parallel_for((n + size - 1) / size, 1, [&](std::int64_t part) {
    f(part * size, n - part * size < size ? n - part * size : size);
  });
}

}  // namespace reelmesh::ops

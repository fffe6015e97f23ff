#pragma once

namespace reelmesh::trace {

/// Functions of a profiler that is attached to the process, such as Nsight Systems: every Scope
/// calls begin(name) and end(), at all trace levels and without waiting for a GPU. Null: none. Set
/// by the CUDA backend (NVTX).
struct ProfilerRanges {
  void (*begin)(const char* name) = nullptr;
  void (*end)() = nullptr;
};
inline ProfilerRanges profiler_ranges;

}  // namespace reelmesh::trace

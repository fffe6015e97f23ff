#pragma once
// NVTX for the emulated GPU: the names of the open ranges of the process.
#include <string>
#include <vector>

namespace reelmesh::emulated {
inline std::vector<std::string> open_ranges;
}

inline int nvtxRangePushA(const char* name) {
  reelmesh::emulated::open_ranges.emplace_back(name);
  return static_cast<int>(reelmesh::emulated::open_ranges.size()) - 1;
}
inline int nvtxRangePop() {
  if (reelmesh::emulated::open_ranges.empty()) return -1;
  reelmesh::emulated::open_ranges.pop_back();
  return static_cast<int>(reelmesh::emulated::open_ranges.size());
}

#pragma once
#include <cstdlib>
#include <filesystem>

namespace reelmesh::test {

/// tests/data: $REELMESH_TEST_DATA if set, otherwise the path at build time.
inline std::filesystem::path data_folder() {
  const char* now = std::getenv("REELMESH_TEST_DATA");
  return now != nullptr ? now : REELMESH_TEST_DATA;
}

}  // namespace reelmesh::test

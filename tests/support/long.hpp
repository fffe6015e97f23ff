#pragma once
#include <cstdlib>
#include <string_view>

namespace reelmesh::test {

/// Whether all variants are tested (tests/long), and not only those of tools/test.
inline bool tests_are_long() {
  const char* text = std::getenv("REELMESH_LONG");
  return text != nullptr && std::string_view(text) == "1";
}

}  // namespace reelmesh::test

#pragma once
#include <cstdint>
#include <string>

namespace reelmesh::app {

/// 1693783872 → "1,693,783,872".
std::string with_separators(std::int64_t number);

}  // namespace reelmesh::app

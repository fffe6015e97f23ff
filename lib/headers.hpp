#pragma once
// Precompiled headers (CMakeLists.txt). Sources must still include what they use, so that they also
// compile with CMAKE_DISABLE_PRECOMPILE_HEADERS=ON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

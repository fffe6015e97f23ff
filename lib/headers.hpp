#pragma once
// What is compiled once for all sources (CMakeLists.txt). Each source includes what it needs all
// the same: it must also compile with CMAKE_DISABLE_PRECOMPILE_HEADERS=ON.
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

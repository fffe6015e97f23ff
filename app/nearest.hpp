#pragma once
#include <span>
#include <string>
#include <string_view>

namespace reelmesh::app {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

/// The name that a user who wrote `given` most likely meant. A right key in the wrong section, or
/// without one, counts as one mistake: "steps" and "model.steps" give "sample.steps".
std::string nearest(std::string_view given, std::span<const std::string> names);

}  // namespace reelmesh::app

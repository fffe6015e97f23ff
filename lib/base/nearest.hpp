#pragma once
#include <span>
#include <string>
#include <string_view>

namespace reelmesh {

/// Minimum number of insertions, deletions, replacements and swaps of neighbours from `a` to `b`.
int edit_distance(std::string_view a, std::string_view b);

/// The name with the smallest edit distance to `given`. A correct key in a wrong section, or
/// without a section, counts as one edit: "steps" and "model.steps" give "sample.steps".
std::string nearest(std::string_view given, std::span<const std::string> names);

}  // namespace reelmesh

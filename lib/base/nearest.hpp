#pragma once
#include <span>
#include <string>
#include <string_view>

namespace reelmesh {

/// Minimum number of insertions, deletions, replacements and swaps of neighbours from `a` to `b`.
int edit_distance(std::string_view a, std::string_view b);

/// The name with the smallest edit distance to `given`. A correct key in a wrong section, or
/// without a section, counts as one edit: "steps" and "model.steps" give "sample.steps". Empty if
/// none is likely to be meant: one edit is allowed, and one more for every three characters of the
/// given key.
std::string nearest(std::string_view given, std::span<const std::string> names);

/// "; did you mean --sample.steps?" for the end of a message; empty for an empty name. before,
/// after: written around the name.
std::string did_you_mean(std::string_view before, std::string_view name,
                         std::string_view after = "");

}  // namespace reelmesh

#pragma once
// Tables of samplers: a family of models has one, with a row for each sampler that its clips can
// have. Rows have the members `option`, the sample.scheduler of a job ("ddim"), and `class_name`,
// the _class_name of scheduler_config.json. What users read about samplers comes from the rows.
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace reelmesh {

/// "ddim or dpm"
template <class Row>
std::string sampler_names(std::span<const Row> rows, std::string_view Row::*name = &Row::option) {
  std::vector<std::string_view> all;
  for (const Row& row : rows) all.push_back(row.*name);
  return fmt::format("{}", fmt::join(all, " or "));
}

/// Null if there is none.
template <class Row>
const Row* find_sampler(std::span<const Row> rows, std::string_view value,
                        std::string_view Row::*name) {
  const auto found = std::ranges::find(rows, value, name);
  return found == rows.end() ? nullptr : &*found;
}

/// Error(data) for another class than those of the rows.
template <class Row>
const Row& sampler_of_class(std::span<const Row> rows, std::string_view name) {
  const Row* found = find_sampler(rows, name, &Row::class_name);
  require(found != nullptr, Status::data, "found the class {}, expected {}", name,
          sampler_names(rows, &Row::class_name));
  return *found;
}

/// Error(usage) for another name than those of the rows, as for samplers of other families.
template <class Row>
const Row& sampler_of_option(std::span<const Row> rows, std::string_view name) {
  const Row* found = find_sampler(rows, name, &Row::option);
  require(found != nullptr, Status::usage, "sample.scheduler is \"{}\", expected {}", name,
          sampler_names(rows));
  return *found;
}

}  // namespace reelmesh

#include "models/common/trainable.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace reelmesh {

std::optional<LoraTarget> LoraShape::target(const std::string& module, std::int64_t in,
                                            std::int64_t out) const {
  const bool chosen = std::ranges::any_of(
      targets, [&](const std::string& end) { return names_module(end, module); });
  if (!chosen) return std::nullopt;
  return LoraTarget{module, in, out, value_of_module(ranks, module, rank),
                    value_of_module(alphas, module, alpha)};
}

void LoraShape::require_all_used(std::span<const LoraTarget> modules,
                                 std::span<const std::string> known) const {
  const auto is_used = [&](const std::string& key) {
    return std::ranges::any_of(
        modules, [&](const LoraTarget& target) { return names_module(key, target.module); });
  };
  for (const std::string& target : targets) {
    require(is_used(target), Status::usage,
            "lora.targets: no layer of the model ends with {}, expected only some of {}", target,
            fmt::join(known, ", "));
  }
  const auto check = [&](const auto& patterns, const char* option) {
    for (const auto& pattern : patterns) {
      require(is_used(pattern.key), Status::usage,
              "{}: found '{}', which names no layer that is trained (lora.targets), expected the "
              "name of one, or its end after a dot: {}, {}",
              option, pattern.key, modules.front().module, targets.front());
    }
  };
  check(ranks, "lora.rank-pattern");
  check(alphas, "lora.alpha-pattern");
}

std::vector<std::int64_t> replica_borders(std::span<const Box> parts, int replicas) {
  std::int64_t all = 0, first = 0;
  for (const Box& part : parts) all += part.numel();
  std::vector<std::int64_t> borders{0};
  for (const Box& part : parts) {
    const std::int64_t columns = part.extent[1], end = first + part.numel();
    while (std::ssize(borders) < replicas) {
      const std::int64_t due = all * std::ssize(borders) / replicas;
      if (due >= end) break;
      borders.push_back(first + (due - first + columns / 2) / columns * columns);
    }
    first = end;
  }
  borders.resize(static_cast<std::size_t>(replicas) + 1, all);
  return borders;
}

}  // namespace reelmesh

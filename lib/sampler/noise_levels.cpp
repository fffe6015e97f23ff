#include "sampler/noise_levels.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/number.hpp"

namespace reelmesh {

std::string NoiseLevels::text() const { return fmt::format("{}", fmt::join(values(), ",")); }

std::optional<NoiseLevels> NoiseLevels::read(std::string_view text) {
  constexpr std::size_t max = 1000;
  std::vector<double> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto value = read_number<double>(text.substr(begin, end - begin));
    const bool follows =
        value && *value > 0 && (values.empty() ? *value <= 1 : *value < values.back());
    if (!follows || values.size() == max) return std::nullopt;
    values.push_back(*value);
    begin = end + 1;
  }
  return NoiseLevels(std::move(values));
}

}  // namespace reelmesh

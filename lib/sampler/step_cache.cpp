#include "sampler/step_cache.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/number.hpp"

namespace reelmesh {
namespace {

std::optional<double> finite_number(std::string_view text) {
  const auto value = read_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t end = 0; (end = text.find(at)) != std::string_view::npos;) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

// The value of "name:value".
std::optional<std::string_view> named_value(std::string_view text, std::string_view name) {
  if (!text.starts_with(name) || text.substr(name.size(), 1) != ":") return std::nullopt;
  return text.substr(name.size() + 1);
}

}  // namespace

std::string StepCache::text() const {
  switch (rule) {
    case Rule::none:
      return "none";
    case Rule::teacache:
      return fmt::format("teacache:{}", threshold);
    case Rule::every:
      break;
  }
  const bool all = from == 0 && to == 100;
  return fmt::format("every:{}{}", every, all ? "" : fmt::format(",from:{},to:{}", from, to));
}

std::optional<StepCache> StepCache::read(std::string_view text) {
  StepCache cache;
  if (text == "none") return cache;
  if (const auto threshold = named_value(text, "teacache")) {
    const auto value = finite_number(*threshold);
    if (!value || *value < 0) return std::nullopt;
    cache.rule = Rule::teacache;
    cache.threshold = *value;
    return cache;
  }
  const std::vector<std::string_view> parts = split(text, ',');
  const auto every = read_number<int>(named_value(parts[0], "every").value_or(""));
  constexpr int max_every = 1000;
  if (!every || *every < 2 || *every > max_every || (parts.size() != 1 && parts.size() != 3)) {
    return std::nullopt;
  }
  cache.rule = Rule::every;
  cache.every = *every;
  if (parts.size() == 1) return cache;
  const auto from = finite_number(named_value(parts[1], "from").value_or(""));
  const auto to = finite_number(named_value(parts[2], "to").value_or(""));
  if (!from || !to || *from < 0 || *from >= *to || *to > 100) return std::nullopt;
  cache.from = *from;
  cache.to = *to;
  return cache;
}

std::string CacheCoefficients::text() const { return fmt::format("{}", fmt::join(values(), ",")); }

std::optional<CacheCoefficients> CacheCoefficients::read(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ',');
  Values values{};
  if (parts.size() != values.size()) return std::nullopt;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto value = finite_number(parts[i]);
    if (!value) return std::nullopt;
    values[i] = *value;
  }
  return CacheCoefficients(values);
}

TeaCacheRule::Decision TeaCacheRule::decide(double sum, double distance) const {
  sum += coefficients(distance);
  if (sum < threshold) return {false, sum};
  return {true, 0};
}

double CacheCoefficients::operator()(double x) const {
  double sum = 0;
  for (const double value : values()) sum = sum * x + value;
  return sum;
}

std::vector<bool> computed_steps(const StepCache& cache, int calls,
                                 const CacheCoefficients& coefficients,
                                 std::span<const double> distances) {
  std::vector<bool> computed(static_cast<std::size_t>(calls), true);
  if (cache.rule == StepCache::Rule::none) return computed;
  const auto last = computed.size() - 1;
  if (cache.rule == StepCache::Rule::teacache) {
    expect(distances.size() == computed.size(), "{} distances of {} steps", distances.size(),
           calls);
    const TeaCacheRule rule{cache.threshold, coefficients};
    TeaCacheRule::Decision decision;
    for (std::size_t i = 1; i < last; ++i) {
      decision = rule.decide(decision.sum, distances[i]);
      computed[i] = decision.computes;
    }
    return computed;
  }
  const auto border = [&](double per_cent) {  // the first step at or after this part of all
    return static_cast<std::size_t>(std::ceil(per_cent / 100 * calls));
  };
  const std::size_t first = border(cache.from), end = border(cache.to);
  for (std::size_t i = first; i < std::min(end, last); ++i) {
    computed[i] = i == 0 || (i - first) % static_cast<std::size_t>(cache.every) == 0;
  }
  return computed;
}

std::string computed_in_words(const std::vector<bool>& computed) {
  std::vector<std::string> runs;
  std::size_t count = 0;
  for (std::size_t i = 0; i < computed.size();) {
    if (!computed[i]) {
      ++i;
      continue;
    }
    const std::size_t first = i;
    while (i < computed.size() && computed[i]) ++i;
    count += i - first;
    runs.push_back(i - first == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, i - 1));
  }
  return fmt::format("{} of {} steps are computed: {}", count, computed.size(),
                     fmt::join(runs, ", "));
}

}  // namespace reelmesh

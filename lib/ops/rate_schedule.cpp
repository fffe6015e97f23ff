#include "ops/rate_schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace reelmesh::ops {
namespace {

double fraction(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(whole, 1));
}

constexpr std::array table{
    RateSchedule{"constant", false, [](std::int64_t, std::int64_t) { return 1.0; }},
    RateSchedule{"linear", true,
                 [](std::int64_t done, std::int64_t all) { return fraction(all - done, all); }},
    RateSchedule{"cosine", true, [](std::int64_t done, std::int64_t all) {
                   return 0.5 * (1 + std::cos(std::numbers::pi * fraction(done, all)));
                 }}};

}  // namespace

std::span<const RateSchedule> rate_schedules() { return table; }

const RateSchedule& rate_schedule_named(std::string_view name) {
  const auto* const found = std::ranges::find(table, name, &RateSchedule::name);
  expect(found != table.end(), "there is no schedule {} of learning rates", name);
  return *found;
}

}  // namespace reelmesh::ops

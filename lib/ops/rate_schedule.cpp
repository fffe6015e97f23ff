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

double half_cosine(double part) { return 0.5 * (1 + std::cos(std::numbers::pi * part)); }

constexpr std::array table{
    RateSchedule{"constant", false, false, false,
                 [](std::int64_t, std::int64_t, const RateShape&) { return 1.0; }},
    RateSchedule{"linear", true, false, false,
                 [](std::int64_t done, std::int64_t all, const RateShape&) {
                   return fraction(all - done, all);
                 }},
    RateSchedule{"cosine", true, false, false,
                 [](std::int64_t done, std::int64_t all, const RateShape&) {
                   return half_cosine(fraction(done, all));
                 }},
    RateSchedule{"cosine_with_restarts", true, true, false,
                 [](std::int64_t done, std::int64_t all, const RateShape& shape) {
                   if (done >= all) return 0.0;
                   const double falls = static_cast<double>(shape.cycles) * fraction(done, all);
                   return half_cosine(std::fmod(falls, 1.0));
                 }},
    RateSchedule{"polynomial", true, false, true,
                 [](std::int64_t done, std::int64_t all, const RateShape& shape) {
                   return std::pow(std::max(1 - fraction(done, all), 0.0), shape.power);
                 }}};

}  // namespace

std::span<const RateSchedule> rate_schedules() { return table; }

const RateSchedule& rate_schedule_named(std::string_view name) {
  const auto* const found = std::ranges::find(table, name, &RateSchedule::name);
  expect(found != table.end(), "there is no schedule {} of learning rates", name);
  return *found;
}

}  // namespace reelmesh::ops

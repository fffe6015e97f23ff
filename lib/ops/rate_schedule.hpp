#pragma once
// How a learning rate goes on after its warm-up. To add one: a row of the table in
// rate_schedule.cpp.
#include <cstdint>
#include <span>
#include <string_view>

namespace reelmesh::ops {

struct RateSchedule {
  std::string_view name;  ///< as users write it, and in files
  bool knows_the_end;     ///< depends on the number of steps, so that a training cannot be longer
  /// What is left of the rate after `done` of `all` steps.
  double (*share)(std::int64_t done, std::int64_t all);
};

/// Those of get_scheduler of diffusers 0.36: constant; linear or half a cosine to 0 at the end.
std::span<const RateSchedule> rate_schedules();
/// Error(internal) if there is none.
const RateSchedule& rate_schedule_named(std::string_view name);

}  // namespace reelmesh::ops

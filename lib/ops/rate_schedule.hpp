#pragma once
// How a learning rate goes on after its warm-up. To add one: a row of the table in
// rate_schedule.cpp.
#include <cstdint>
#include <span>
#include <string_view>

namespace reelmesh::ops {

/// What schedules can be told. Each one reads what its row names.
struct RateShape {
  std::int64_t cycles = 1;  ///< how often it falls
  double power = 1;
};

struct RateSchedule {
  std::string_view name;  ///< as users write it, and in files
  bool knows_the_end;     ///< depends on the number of steps, so that a training cannot be longer
  bool uses_cycles, uses_power;
  /// What is left of the rate after `done` of `all` steps, from 1 to 0.
  double (*share)(std::int64_t done, std::int64_t all, const RateShape& shape);
};

/// Those of get_scheduler of diffusers 0.36: constant; linear, half a cosine, half a cosine several
/// times, or a power of what is left, to 0 at the end.
std::span<const RateSchedule> rate_schedules();
/// Error(internal) if there is none.
const RateSchedule& rate_schedule_named(std::string_view name);

}  // namespace reelmesh::ops

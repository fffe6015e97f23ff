#include "pipeline/engine.hpp"

#include "pipeline/phased.hpp"
#include "pipeline/split.hpp"

namespace reelmesh::pipeline {

bool make_batches_together(const comm::Group& world, Work& work, const Schedule& schedule,
                           comm::Watchdog* watchdog) {
  const bool made = schedule.roles.mode == Mode::split
                        ? run_split(world, work, schedule, watchdog)
                        : run_phased(world, work, schedule, watchdog);
  return world.max(std::int64_t{made ? 0 : 1}) == 0;
}

}  // namespace reelmesh::pipeline

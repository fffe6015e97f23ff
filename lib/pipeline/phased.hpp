#pragma once
#include "pipeline/engine.hpp"

namespace reelmesh::pipeline {

/// The policy of phased mode. → false if this rank knows that the job is to stop. Collective over
/// the world.
bool run_phased(const comm::Group& world, Work& work, const Schedule& schedule,
                comm::Watchdog* watchdog);

}  // namespace reelmesh::pipeline

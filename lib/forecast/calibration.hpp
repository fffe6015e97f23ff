#pragma once
// Measures a machine, for predictions of times (plan/machine_times.hpp).
#include <filesystem>

#include "comm/group.hpp"
#include "plan/machine_times.hpp"
#include "tensor/device.hpp"

namespace reelmesh {

/// Times of operations at sizes that models have, of one rank and of several at the same time, of
/// messages, of loading and of writing in `folder`; about a minute on CPUs. threads: of each rank.
/// With more threads on a node than cores also what they lose by that. Logs at its start what it
/// measures, and warns at its end if repeated operations varied. The same on all ranks. Errors of
/// files in `folder`. Collective.
MachineTimes measure_machine(const comm::Group& world, Device device, int threads,
                             const std::filesystem::path& folder);

}  // namespace reelmesh

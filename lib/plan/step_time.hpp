#pragma once
// Predicted times of a plan, with a machine whose times are known.
#include "plan/plan.hpp"

namespace reelmesh {

/// Of a step of a batch of clips of one size on a rank, with the weights that it fetches. Of a
/// training: of the clips of a step that it takes part in. `never` or more if the machine's file
/// lacks a link that it needs.
Elapsed step_time(const Plan& plan, const ClipPlan& size, int rank, const MachineTimes& machine);

/// The same of the slowest of these ranks, for which the others wait.
Elapsed step_time(const Plan& plan, const ClipPlan& size, const RankRange& ranks,
                  const MachineTimes& machine);

/// What a step costs a rank of this relative speed: seconds, or without a machine FLOPs
/// (StepCost::total). To compare plans.
double step_cost(const Plan& plan, const ClipPlan& size, int rank, double speed,
                 const MachineTimes* machine);

}  // namespace reelmesh

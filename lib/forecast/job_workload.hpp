#pragma once
// What a plan needs to know of a job.
#include "job/job_plan.hpp"

namespace reelmesh {

/// The dtypes of tensors and GEMMs.
Precision job_precision(const Job& job, const Conditions& conditions);

/// The formats of these clips, in the order of their first.
std::vector<ClipFormat> clip_formats(const ClipKinds& kinds);

/// Host memory of a rank for the requests of all clips, and for what it keeps of each while the job
/// is planned and run.
std::int64_t bytes_of_clips(const Job& job);

int ranks_of_fullest_node(const PlanMachine& machine);
/// Ranks of the fullest node that compute at the same time while clips are made. In split mode
/// those of the text stage have nothing to do then. Errors as assign_roles.
int busy_ranks(const Job& job, const PlanMachine& machine);

/// The workload of a job whose clips are known: `planned` has all but the plan, and must outlive
/// it.
Workload job_workload(const Job& job, const JobPlan& planned, const Conditions& conditions);

}  // namespace reelmesh

#pragma once
// From a job and a number of ranks to the plan that `run` follows and `plan` prints: roles, cuts,
// and memory that fits. Knows no MPI: every rank comes to the same plan.
#include "pipeline/family.hpp"
#include "plan/memory.hpp"

namespace reelmesh::pipeline {

/// What a plan takes from the machine; the same on all ranks.
struct Conditions {
  int ranks = 1;
  int threads = 1;                  ///< of the rank that has most
  DType products = DType::float32;  ///< ops::compute_dtype, the larger where ranks differ
  bool on_gpu = false;              ///< memory is a GPU's

  std::int64_t program() const { return on_gpu ? program_bytes_on_gpu : program_bytes; }
};

/// The types that a job computes in.
Precision precision_of(const Job& job, const Conditions& conditions);

/// device.speeds as given, empty for equal ones and for those that are still to be measured.
/// Error(unavailable) where there are too few or too many.
std::vector<double> speeds_of_ranks(const Job& job, int ranks);

/// Roles and device map. With device.memory-limit, a text encoder that goes by `auto` lies on ranks
/// such that it fits, and in split mode text and decode get as many ranks as fit needs.
/// Error(unavailable) as make_plan.
Plan plan_roles(const Job& job, const Family& model, const std::vector<Clip>& clips,
                const Conditions& conditions);

/// Memory of each rank under this plan, for the clip that needs most. Lets stages take turns where
/// the limits ask for it.
MemoryPlan plan_memory(const Job& job, const Family& model, const std::vector<Clip>& clips,
                       const Plan& plan, const Conditions& conditions);

/// Error(unavailable) where it does not fit: the rank, the bytes needed, the limit, and what would
/// help, which is tried out.
void require_fit(const Job& job, const Family& model, const std::vector<Clip>& clips,
                 const MemoryPlan& memory, const Conditions& conditions);

}  // namespace reelmesh::pipeline

#pragma once
// A job and a machine → clips and the plan that `run` follows and `plan` prints. Knows no MPI:
// every rank comes to the same plan.
#include "pipeline/family.hpp"
#include "plan/plan.hpp"

namespace reelmesh::pipeline {

/// The text encoder for texts of at most so many tokens.
TextWorkload text_workload(const T5Config& config, std::int64_t tokens, const Precision& precision);

/// What a job is planned for, the same on all ranks.
struct Conditions {
  PlanMachine machine;
  DType products = DType::float32;  ///< ops::compute_dtype, the larger where ranks differ
  bool on_gpu = false;              ///< memory is a GPU's
  /// Of weights on processors: this one's packing only where that of all ranks is the same.
  ops::PackedFor packed_for = ops::PackedFor::this_processor;
};

/// Conditions of so many ranks with the limits and speeds that the job gives. node_of: of each
/// launched rank. Error(unavailable) naming device.memory-limit or device.speeds where their number
/// does not fit the ranks.
Conditions conditions_of(const Job& job, int ranks, int threads, std::vector<int> node_of,
                         DType products, bool on_gpu);

struct JobPlan {
  std::unique_ptr<const Family> family;
  std::vector<Clip> clips;
  std::vector<ClipFormat> formats;  ///< of plan.sizes
  Plan plan;

  /// The index in plan.sizes of clips like this one.
  std::size_t size_of(const Clip& clip) const;
  const ClipPlan& plan_of(const Clip& clip) const { return plan.sizes[size_of(clip)]; }
};

/// Reads the model's small files. Errors as Family::open, Family::clips and make_plan; also
/// Error(no_input) for a missing file of parallel.device-map.
JobPlan plan_job(const Job& job, const Conditions& conditions);

/// Error(unavailable) where it does not fit: the rank, the bytes needed, the limit, and what would
/// help, which is tried out.
void require_fit(const Job& job, const JobPlan& planned, const Conditions& conditions);

/// Several lines for people: roles, how clips like the first lie over the ranks, memory.
std::string describe(const JobPlan& planned);

}  // namespace reelmesh::pipeline

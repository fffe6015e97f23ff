#pragma once
// What job.h5 says of a job.
#include "job/job_plan.hpp"
#include "job/machine.hpp"
#include "store/job.hpp"

namespace reelmesh {

/// The program, as recorded in the results.
struct ProgramInfo {
  std::string name, version, revision;
  bool changed = false;  ///< the source had changes that were not committed
  std::string compiler, compiler_flags, build_type;
  std::vector<std::string> libraries;  ///< "Open MPI 4.1.4": those that are loaded

  /// "0.1.0 (1234abcd)", "0.1.0 (1234abcd, changed)"
  std::string text() const;
};

/// The computers of all ranks, on the first rank; elsewhere nothing. Collective.
std::vector<RankHost> gather_hosts(const comm::Group& world, const Machine& machine, Device device);

/// The record of a job that has been planned, unfinished, without `clips`, `plan`, `plan_json` and
/// times. hosts: as gather_hosts(). on_gpu: whether this rank computes on one. weights: hash of the
/// checkpoint.
JobRecord job_record(const Job& job, const JobPlan& planned, const ProgramInfo& program,
                     std::vector<RankHost> hosts, bool on_gpu, const std::string& weights);

/// Sets all but the states of the clips of a job, as write_job needs them. records: of job.clips,
/// in the same order.
void set_requests(std::vector<JobClip>& records, const Job& job, const JobPlan& planned);

/// Error(data) if the job runs another one again (Job::source) and the checkpoint is not the one
/// that made its clips.
void require_same_weights(const Job& job, const std::string& weights);

}  // namespace reelmesh

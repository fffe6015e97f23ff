#include <iostream>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "commands.hpp"
#include "job/describe.hpp"
#include "job/machine.hpp"
#include "ops/onednn.hpp"
#include "options.hpp"

namespace reelmesh::app {

Status plan_command(int argc, const char* const* argv) {
  const PlanOptions options = parse_plan(argc, argv);
  if (log::launch_rank() != first_rank) return Status::ok;  // under mpirun, only one rank prints
  const Job& job = options.job;
  expect(!job.train, "plans of a training are not complete in this version");
  std::vector<int> node_of;
  for (int rank = 0; rank < options.ranks; ++rank) {
    node_of.push_back(rank / options.ranks_per_node);
  }
  choose_products(job);
  const Conditions conditions =
      plan_conditions(job, options.ranks, job.threads.value_or(1), std::move(node_of),
                      ops::compute_dtype(job.dtype), job.backend == Backend::cuda);
  Family::open(job.model)->check_weights(has_videos(job));
  const JobPlan planned = plan_job(job, conditions, probe_inputs(job));
  require_fit(job, planned, conditions);
  const nlohmann::json described =
      describe(planned, form_batches(planned.clips, planned.kinds, job.batch));
  std::cout << (options.json ? described.dump(2) + "\n"
                             : fmt::format("{}\n{}", describe_clips(planned.clips, planned.kinds),
                                           plan_text(described, Detail::ranks)))
            << std::flush;
  return Status::ok;
}

}  // namespace reelmesh::app

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "commands.hpp"
#include "ops/onednn.hpp"
#include "options.hpp"
#include "pipeline/describe.hpp"
#include "pipeline/machine.hpp"

namespace reelmesh::app {

Status plan_command(int argc, const char* const* argv) {
  const PlanOptions options = parse_plan(argc, argv);
  if (log::launch_rank() != 0) return Status::ok;  // under mpirun, only one rank prints
  const Job& job = options.job;
  std::vector<int> node_of;
  for (int rank = 0; rank < options.ranks; ++rank) {
    node_of.push_back(rank / options.ranks_per_node);
  }
  pipeline::choose_products(job);
  const pipeline::Conditions conditions =
      pipeline::plan_conditions(job, options.ranks, job.threads.value_or(1), std::move(node_of),
                                ops::compute_dtype(job.dtype), job.backend == Backend::cuda);
  pipeline::Family::open(job.model)->check_weights(pipeline::has_videos(job));
  const pipeline::JobPlan planned =
      pipeline::plan_job(job, conditions, pipeline::probe_inputs(job));
  pipeline::require_fit(job, planned, conditions);
  const nlohmann::json described =
      pipeline::describe(planned, pipeline::form_batches(planned.clips, planned.kinds, job.batch));
  std::cout << (options.json
                    ? described.dump(2) + "\n"
                    : fmt::format("{}\n{}", pipeline::describe_clips(planned.clips, planned.kinds),
                                  plan_text(described, Detail::ranks)))
            << std::flush;
  return Status::ok;
}

}  // namespace reelmesh::app

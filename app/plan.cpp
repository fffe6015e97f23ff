#include <fmt/ranges.h>

#include <iostream>

#include "base/log.hpp"
#include "base/report.hpp"
#include "base/units.hpp"
#include "commands.hpp"
#include "ops/onednn.hpp"
#include "options.hpp"
#include "pipeline/machine.hpp"
#include "pipeline/plan_json.hpp"
#include "pipeline/summary.hpp"

namespace reelmesh::app {
namespace {

using pipeline::JobPlan;
using Row = pipeline::PlanRow;

std::string shown(const Box& box) { return box.empty() ? "-" : to_string(box); }

std::string shown(const std::vector<std::int64_t>& layers) {
  if (layers.empty()) return "-";
  const bool together =
      layers.back() - layers.front() + 1 == static_cast<std::int64_t>(layers.size());
  return together ? fmt::format("{}-{}", layers.front(), layers.back())
                  : fmt::format("{}", fmt::join(layers, ","));
}

std::string shown(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

void print(const JobPlan& planned, int batch) {
  double busiest = 0, all = 0;
  std::int64_t sent = 0;
  Table table({"rank", "node", "role", "text layers", "tokens", "decodes", "memory", "sent/step",
               "GFLOP/step"},
              3);
  const Plan& plan = planned.plan;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const Row row{planned, rank};
    const StepCost& step = row.cost().step;
    busiest = std::max(busiest, step.flops);
    all += step.flops;
    sent += step.sent_bytes;
    table.row({std::to_string(rank), std::to_string(plan.node[row.index()]), plan.roles.of(rank),
               shown(row.text_layers()), shown(row.tokens()), shown(row.decodes()),
               shown(plan.memory.peak(rank)), shown(step.sent_bytes),
               fmt::format("{:.4g}", step.flops * 1e-9)});
  }
  const std::vector<pipeline::BatchOutline> batches = pipeline::form_batches(planned.clips, batch);
  std::cout << fmt::format("{}\n\n{}\n{}{}", describe_clips(planned.clips, planned.kinds),
                           summary(planned), describe(planned), describe_schedule(planned, batches))
            << fmt::format(
                   "a step of one clip: {:.4g} GFLOP, {:.4g} on the busiest rank; {} sent by all "
                   "ranks together\n\n",
                   all * 1e-9, busiest * 1e-9, shown(sent))
            << table.str() << std::flush;
}

}  // namespace

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
  const JobPlan planned = pipeline::plan_job(job, conditions, pipeline::probe_inputs(job));
  pipeline::require_fit(job, planned, conditions);
  if (options.json) {
    std::cout << pipeline::as_json(planned).dump(2) << std::endl;
  } else {
    print(planned, job.batch);
  }
  return Status::ok;
}

}  // namespace reelmesh::app

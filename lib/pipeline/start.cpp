#include "pipeline/start.hpp"

#include <algorithm>

#include "base/device_spans.hpp"
#include "base/log.hpp"
#include "base/trace.hpp"
#include "comm/group_values.hpp"
#include "comm/together.hpp"
#include "forecast/plan_job.hpp"
#include "job/host_memory.hpp"
#include "job/unlike_devices.hpp"
#include "layout/convolutions.hpp"
#include "ops/convolution.hpp"
#include "ops/packing.hpp"

namespace reelmesh::pipeline {

Devices find_devices_together(const comm::Group& ranks, const Job& job) {
  Devices found;
  found.machine = find_machine(ranks);
  found.threads = set_threads(found.machine, job.threads);
  found.device = find_device(ranks, job.backend);
  if (found.device.is_cuda()) {
    require_like_gpus(ranks, job, found.device);
  } else {
    require_like_processors(ranks, job);
    agree_on_products(ranks, job);
  }
  found.launched = ranks.use_device(found.device, job.transport, job.device_timeout);
  if (!found.device.is_cuda()) return found;
  if (found.launched.size() > 1) {
    log::info("messages between GPUs use {}", name_of(found.launched.transport()));
  }
  trace::recorder().device_spans = std::make_shared<trace::DeviceSpans>(device_clock(found.device));
  comm::run_collectively(found.launched,
                         [&] { ops::require_right_convolutions(found.device, job.dtype); });
  return found;
}

Conditions agree_on_conditions(const Job& job, const comm::Group& world, const Devices& found) {
  Conditions conditions =
      plan_conditions(job, world.size(), static_cast<int>(world.max(std::int64_t{found.threads})),
                      gather_nodes(world), ops::compute_dtype(job.dtype), found.device.is_cuda());
  const std::vector<std::string> packings = world.all_gather(ops::packing_signature());
  if (std::ranges::adjacent_find(packings, std::ranges::not_equal_to()) != packings.end()) {
    conditions.packed_for = PackedFor::any_processor;
  }
  if (!found.device.is_cuda()) {
    conditions.node_bytes =
        static_cast<std::int64_t>(world.min(static_cast<double>(host_memory().physical)));
  }
  if (job.machine != nullptr) {
    PartBytes bytes{};
    comm::run_on_first_rank(world,
                            [&] { bytes = bytes_on_disk(*Family::open(job.model), job.dtype); });
    conditions.on_disk = comm::broadcast_value(world, bytes, 0);
  }
  if (job.measure_speeds) {
    conditions.machine.rank_weights = {measure_speeds(world, job.dtype, found.device, job.numerics),
                                       false};
  }
  if (job.memory_limits.empty()) {
    conditions.machine.memory_limits = {free_memory_of_ranks(world, found.device), false};
    conditions.machine.limits_are_free_memory = true;
  }
  return conditions;
}

comm::Group require_plan_fits_together(const Job& job, const JobPlan& planned,
                                       const Conditions& conditions, const Devices& found) {
  const Plan& plan = planned.plan;
  // Without a limit from the user, a predicted excess of GPU memory is only a warning.
  if (!job.memory_limits.empty()) {
    // What would help takes seconds to find, and other ranks more of them on a busy node.
    comm::run_on_first_rank(found.launched, [&] { require_fit(job, planned, conditions); });
  } else if (found.device.is_cuda() && !plan.memory.fits()) {
    log::warning("{} (the GPU's free memory); continuing, but the job may run out of memory",
                 excess_text(plan.memory));
  }
  std::vector<int> order;  // of ranks of found.launched
  for (const LaunchedRank rank : plan.launched) order.push_back(number_of(rank));
  comm::Group world =
      std::ranges::is_sorted(order) ? found.launched : found.launched.in_order(order);
  require_host_memory(world, plan.memory, found.threads);
  agree_on_convolutions(world, found.device, planned.convolutions, job.numerics);
  const std::string idle = idle_text(plan.roles, world.size());
  if (!idle.empty()) log::warning("{}", idle);
  return world;
}

}  // namespace reelmesh::pipeline
